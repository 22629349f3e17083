"""`python -m serving.worker --spec FILE [--validate | --tune]`: serve one version, or measure it once and exit."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import structlog
import uvloop

from serving import logs
from serving.parenting import die_with_parent
from serving.telemetry.tracing import Tracing, from_environment
from serving.worker.app import Worker
from serving.worker.control import ControlChannel, StateLine
from serving.worker.spec import SpecError, WorkerSpec, read
from serving.worker.tuning.candidate import measure
from serving.worker.validate import validate

log = structlog.get_logger(__name__)

NICENESS_OF_TUNING = 10
"""It runs beside replicas that serve: they go first."""


def main() -> int:
    """Exit status: 0 drained or validated, 1 failed (the reason went to the agent), 2 wrong spec."""
    die_with_parent()
    os.umask(0o077)
    control = ControlChannel.inherited()
    logs.configure({})
    arguments = _arguments()
    try:
        spec = read(arguments.spec)
    except SpecError as error:
        control.send(StateLine("failed", str(error)))
        log.error("worker.wrong_spec", error=str(error))
        return 2
    _prepare_process(spec)
    structlog.contextvars.bind_contextvars(replica=spec.replica_id, version=spec.version.id)
    if arguments.validate:
        return _validate(spec, control)
    if arguments.tune:
        return _tune(spec, control)
    return uvloop.run(_serve(spec, control))


async def _serve(spec: WorkerSpec, control: ControlChannel) -> int:
    # The address of Valkey is all a worker learns of the platform: it may run a model's own code, so it
    # gets no database and no secrets (hence not `runtime.read()`).
    tracing = _tracing(spec)
    try:
        return await Worker(spec, control, os.environ.get("VALKEY_URL"), tracing).run()
    except (OSError, ValueError) as error:
        control.send(StateLine("failed", f"cannot listen on {spec.address}: {error}"))
        log.error("worker.cannot_listen", address=spec.address, error=str(error))
        return 1
    finally:
        if tracing is not None:
            tracing.close()


def _tracing(spec: WorkerSpec) -> Tracing | None:
    """A model is served with or without its spans."""
    try:
        return from_environment("tidegate-worker", spec.replica_id)
    except ValueError as error:
        log.error("tracing.unavailable", reason=str(error))
        return None


def _validate(spec: WorkerSpec, control: ControlChannel) -> int:
    report = validate(spec)
    control.send(report)
    log.info("worker.validated", ok=report.ok, reason=report.reason)
    return 0 if report.ok else 1


def _tune(spec: WorkerSpec, control: ControlChannel) -> int:
    if spec.tuning is None:
        log.error("worker.wrong_spec", error="--tune needs a tuning in the spec")
        return 2
    os.nice(NICENESS_OF_TUNING)
    row = measure(spec, spec.tuning)
    control.send(row)
    log.info("worker.tuned", index=row.index, ok=row.ok, reason=row.reason)
    return 0 if row.ok else 1


def _prepare_process(spec: WorkerSpec) -> None:
    """Before torch is imported: it reads these once. No hub, no network, as many threads as agreed."""
    if spec.cpu_core is not None:
        os.sched_setaffinity(0, {spec.cpu_core})
    os.environ |= {
        "OMP_NUM_THREADS": str(spec.threads),
        "MKL_NUM_THREADS": str(spec.threads),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m serving.worker", description=__doc__)
    parser.add_argument("--spec", type=Path, required=True, help="JSON file that says what to serve")
    runs = parser.add_mutually_exclusive_group()
    runs.add_argument("--validate", action="store_true", help="load, warm up, measure, report, exit")
    runs.add_argument("--tune", action="store_true", help="the same for one candidate of a tuning run")
    return parser.parse_args()


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # Not sys.exit: the engine's thread may be inside a batch, and nothing is left to clean up.
    os._exit(status)
