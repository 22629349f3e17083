"""`manage.py tune`: sweep a version's options on a host, watch the table grow, make a version of the best."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from console.words import label_of
from serving.contract import Agreement, TuningRow
from serving.control.catalog.models import Version
from serving.control.tuning.access import access_tuning
from serving.control.tuning.actions import apply_tuning, request_tuning
from serving.control.tuning.models import GOALS, TuningCandidate, TuningRun
from serving.control.tuning.recommend import Recommendation, Tolerance
from serving.control.tuning.samples import is_json, tensors_of, texts_of
from tenants.actors import Actor
from tenants.errors import DomainError

POLL_S = 0.5
BATCHES = (1, 8, 32)
HEAD = ("options", "1 row/s", "8 rows/s", "32 rows/s", "p50 ms", "MiB", "load s", "cosine", "error", "labels")
WIDTHS = (34, 9, 9, 10, 8, 7, 7, 9, 9, 7)


class Command(BaseCommand):
    help = "Measure a version under other options (number format, int8, compiled, …) and recommend one."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("model")
        parser.add_argument(
            "version", nargs="?", type=int, help="its number; the newest ready one by default"
        )
        parser.add_argument("--tolerance", type=float, default=0.999, help="least cosine with fp32 (0.999)")
        parser.add_argument("--max-error", type=float, help="largest absolute difference from fp32")
        parser.add_argument("--labels", type=float, help="least share of rows whose labels agree with fp32")
        parser.add_argument("--goal", choices=[goal for goal, _ in GOALS], default="throughput")
        parser.add_argument("--device", default="cpu", help="cpu or cuda:N")
        parser.add_argument("--samples", type=Path, help="texts, one per line, or a JSON body with inputs")
        parser.add_argument("--apply", action="store_true", help="make a version of what is recommended")

    def handle(self, *args: Any, **options: Any) -> None:
        by = Actor.system("tune")
        try:
            run = _requested(by, options)
            self.stdout.write(f"{run.version} on {run.host} ({run.device}), run {run.pk}")
            self._watch(by, run)
            self._conclude(by, access_tuning(by, run.pk), is_applying=options["apply"])
        except DomainError as error:
            raise CommandError(error.message) from error
        except KeyboardInterrupt:
            self.stdout.write("\nNo longer watching; the run goes on, and its page has the result.")

    def _watch(self, by: Actor, run: TuningRun) -> None:
        """Print each candidate once it is measured, until the run is over. Raises `CommandError` when it failed."""
        self.stdout.write(_line(HEAD))
        printed: set[int] = set()
        while True:
            current = access_tuning(by, run.pk)
            for candidate in current.in_order():
                row = candidate.row()
                if row is not None and candidate.index not in printed:
                    printed.add(candidate.index)
                    self.stdout.write(_figures(candidate, row))
            if not current.is_active:
                break
            time.sleep(POLL_S)
        for skipped in current.skipped:
            self.stdout.write(f"not tried: {label_of(skipped['options'])} ({skipped['reason']})")
        if current.state != "done":
            raise CommandError(current.state_reason or f"The run is {current.state}.")

    def _conclude(self, by: Actor, run: TuningRun, *, is_applying: bool) -> None:
        found = run.recommendation()
        if found.index is None:
            raise CommandError(f"Nothing to recommend: {found.reason}.")
        candidate = run.in_order()[found.index]
        self.stdout.write(self.style.SUCCESS(_verdict(run, candidate, found)))
        if candidate.options == run.version.options:
            self.stdout.write("That is what the version does already.")
        elif is_applying:
            version = apply_tuning(by=by, run=run, index=found.index)
            self.stdout.write(f"Version {version.number} is registered with these options: {version.state}.")


def _requested(by: Actor, options: dict[str, Any]) -> TuningRun:
    version = _version(options["model"], options["version"])
    tolerance = Tolerance(options["tolerance"], options["max_error"], options["labels"])
    samples = _samples(options["samples"], version)
    run = request_tuning(
        by=by, version=version, tolerance=tolerance, goal=options["goal"], device=options["device"], **samples
    )
    return access_tuning(by, run.pk)


def _version(model: str, number: int | None) -> Version:
    rows = Version.objects.select_related("model", "artifact").filter(model__name=model)
    chosen = rows.filter(state="ready") if number is None else rows.filter(number=number)
    version = chosen.order_by("-number").first()
    if version is None:
        raise CommandError(f"No {'ready version' if number is None else f'version {number}'} of {model!r}.")
    return version


def _samples(file: Path | None, version: Version) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        raw = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{file} cannot be read: {error}") from error
    if is_json(raw):
        return {"tensors": tensors_of(raw, version.input_specs())}
    return {"texts": texts_of(raw)}


def _figures(candidate: TuningCandidate, row: TuningRow) -> str:
    label = str(label_of(candidate.changed()))
    if not row.ok:
        return f"{label:<{WIDTHS[0]}}  {row.reason}"
    agreed = row.agreement or Agreement()
    cells = [
        label,
        *(_number(row.rows_per_s.get(rows), ".1f") for rows in BATCHES),
        _number(row.p50_ms, ".2f"),
        _number(row.memory_bytes and row.memory_bytes / (1 << 20), ".0f"),
        _number(row.load_s, ".1f"),
        _number(agreed.cosine_min, ".6f"),
        _number(agreed.max_abs_error, ".2g"),
        _number(agreed.label_agreement, ".1%"),
    ]
    return _line(cells)


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _line(cells: Any) -> str:
    first, *others = cells
    return f"{first:<{WIDTHS[0]}}" + "".join(
        f"{cell:>{width}}" for cell, width in zip(others, WIDTHS[1:], strict=True)
    )


def _verdict(run: TuningRun, candidate: TuningCandidate, found: Recommendation) -> str:
    gain = f", {found.gain:.2f} × the reference's {run.goal}" if found.gain is not None else ""
    return f"recommended: {label_of(candidate.changed())}{gain}"
