"""A version that can be tuned, and runs of it in every state."""

from __future__ import annotations

from collections.abc import Sequence

from serving.contract import Agreement, TuningReport, TuningRow
from serving.control.catalog.models import Artifact, Model, Version
from serving.control.catalog.options import complete
from serving.control.fleet.models import Host
from serving.control.tuning.actions import record_tuning, request_tuning
from serving.control.tuning.models import TuningRun
from tests.tenants.conftest import SYSTEM

WISHES = ({"dtype": "bf16"}, {"quantize": "int8"}, {"execution": "padded"}, {"compile": True})
ROWS = (
    TuningRow(
        index=0, ok=True, rows_per_s={1: 96.0, 8: 230.0, 32: 252.0}, p50_ms=10.4, memory_bytes=180 << 20,
        load_s=0.8, agreement=Agreement(cosine_min=1.0, cosine_mean=1.0, max_abs_error=0.0),
    ),
    TuningRow(
        index=1, ok=True, rows_per_s={1: 130.0, 8: 371.0, 32: 428.0}, p50_ms=7.7, memory_bytes=120 << 20,
        load_s=0.9, agreement=Agreement(cosine_min=0.99987, cosine_mean=0.99993, max_abs_error=0.0031),
    ),
    TuningRow(
        index=2, ok=True, rows_per_s={1: 205.0, 8: 515.0, 32: 628.0}, p50_ms=4.9, memory_bytes=90 << 20,
        load_s=1.7, agreement=Agreement(cosine_min=0.875, cosine_mean=0.91, max_abs_error=0.21),
    ),
    TuningRow(index=3, ok=False, reason="it needed more than 6400 MiB of memory"),
)  # fmt: skip


def build_encoder(model: Model) -> Version:
    """A ready encoder version of `model`, without files."""
    artifact, _ = Artifact.objects.get_or_create(
        sha256="b" * 64,
        defaults={"format": "encoder", "size_bytes": 90 << 20, "file_count": 9, "created_by": "tests"},
    )
    model.refresh_from_db()
    model.last_number += 1
    model.save()
    return Version.objects.create(
        model=model,
        number=model.last_number,
        engine="encoder",
        artifact=artifact,
        options=complete("encoder", {}),
        state="ready",
        created_by="tests",
    )


def build_run(version: Version, rows: Sequence[TuningRow] = ROWS, *, is_done: bool = False) -> TuningRun:
    """A run with these rows measured so far."""
    Host.objects.update(features=["bf16", "int8", "compiler"])
    run = request_tuning(by=SYSTEM, version=version, candidates=WISHES)
    for row in rows:
        record_tuning(TuningReport(tuning_id=run.pk, row=row))
    if is_done:
        record_tuning(TuningReport(tuning_id=run.pk, is_done=True))
    run.refresh_from_db()
    return run
