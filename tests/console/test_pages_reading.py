"""Usage, audit and the playground: everybody reads their own, exports are safe, keys are not kept."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from django.db import connections
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings

from serving.contract import UsageRow
from serving.control.catalog.models import Version
from tenants.usage import record_usage
from tests.console.conftest import World, build_world


def text(client: Client, name: str, query: str = "") -> str:
    return client.get(reverse(name) + query).content.decode()


@pytest.fixture
def spent(world: World) -> World:
    minute = int(timezone.now().timestamp()) // 60 * 60
    for tenant, requests in ((world.cast.tenant, 1_234), (world.cast.other, 987)):
        row = UsageRow(
            minute=minute,
            tenant_id=tenant.pk,
            key_id=world.key.pk,
            model="minilm",
            version_id=world.version.pk,
            sla_class="interactive",
            requests=requests,
            device_us=90_000_000,
            cost_micro=30_000,
        )
        record_usage("tests", [row])
    return world


def test_everybody_reads_the_usage_of_their_own_tenants(spent: World) -> None:
    assert "1,234" in text(spent.client("viewer"), "usage")
    assert "987" not in text(spent.client("viewer"), "usage")
    assert "2,221" in text(spent.client("operator"), "usage")


def test_usage_has_units_and_the_day(spent: World) -> None:
    page = text(spent.client("viewer"), "usage")
    assert "1.50\u202fmin" in page
    assert "0.0300" in page
    assert f"{timezone.localtime():%Y-%m-%d}" in page


def test_usage_can_be_narrowed_and_ignores_nonsense(spent: World) -> None:
    assert "1,234" not in text(spent.client("viewer"), "usage", "?model=other&days=1")
    assert "1,234" in text(spent.client("viewer"), "usage", "?days=-5")


def test_the_audit_trail_shows_what_changed(world: World) -> None:
    client = world.client("owner")
    client.post(reverse("tenant_edit", args=["acme"]), {"name": "Acme Inc."})
    page = text(client, "audit", "?action=tenant.updated")
    assert "<del>Acme</del>" in page
    assert "<ins>Acme Inc.</ins>" in page


def test_the_audit_trail_of_others_is_not_shown(world: World) -> None:
    assert "acme" not in text(world.client("stranger"), "audit").lower().replace("tidegate", "")


def test_filters_that_make_no_sense_show_everything(world: World) -> None:
    assert "key.created" in text(
        world.client("owner"), "audit", "?since=nonsense&until=2026-02-31&sort=bogus&page=zero"
    )


# ---------------------------------------------------------------- playground

Spec = tuple[str, str, list[int]]
TEXT: Spec = ("text", "BYTES", [-1])


class _Gateway(BaseHTTPRequestHandler):
    """Answers like ours, and keeps what it was asked."""

    asked: list[tuple[str, str, dict[str, object]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append((self.path, self.headers["authorization"], body))
        payload = json.dumps({"data": [{"embedding": [0.25] * 384}]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(payload)))
        self.send_header(
            "server-timing",
            "gateway;dur=0.300, queue;dur=4.100, batch_wait;dur=1.000, execute;dur=8.000, post;dur=0.200, total;dur=13.600",
        )
        self.send_header("x-tidegate-batch-size", "7")
        self.send_header("x-tidegate-batch-close", "due")
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def gateway(settings: Settings) -> Iterator[type[_Gateway]]:
    _Gateway.asked = []
    server = HTTPServer(("127.0.0.1", 0), _Gateway)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings.GATEWAY_URL = f"http://127.0.0.1:{server.server_port}"
    yield _Gateway
    server.shutdown()
    server.server_close()


def test_the_playground_draws_the_receipt_of_the_answer(world: World, gateway: type[_Gateway]) -> None:
    values = {"model": "minilm", "text": "one\ntwo\n", "key": world.token}
    answer = world.client("viewer").post(reverse("playground"), values)
    page = answer.content.decode()
    assert gateway.asked == [
        ("/v1/embeddings", f"Bearer {world.token}", {"model": "minilm", "input": ["one", "two"]})
    ]
    assert "13.6\u202fms" in page
    assert "tg-stage-queue" in page
    assert "384 values" in page
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("takes", "gives", "typed", "path", "curl"),
    [
        ((TEXT,), (("probs", "FP32", [-1, 3]),), "one", "/v2/models/minilm/infer", "/infer"),
        ((TEXT,), (("said", "BYTES", [-1]),), "one", "/v2/models/minilm/infer", "/generate_stream"),
        ((("x", "FP32", [-1, 4]),), (("y", "FP32", [-1]),), "", "/v2/models/minilm/infer", "/infer"),
    ],
)
def test_a_model_is_asked_by_the_route_that_suits_it(
    world: World,
    gateway: type[_Gateway],
    takes: tuple[Spec, ...],
    gives: tuple[Spec, ...],
    typed: str,
    path: str,
    curl: str,
) -> None:
    """Whatever its engine: a classifier makes no embeddings, and an ONNX model takes no text."""
    Version.objects.filter(pk=world.version.pk).update(inputs=_specs(takes), outputs=_specs(gives))
    inputs = json.dumps([{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0, 0, 0, 0]}])
    values = {"model": "minilm", "text": typed, "inputs": inputs, "key": world.token}
    assert world.client("viewer").post(reverse("playground"), values).status_code == 200
    (asked,) = gateway.asked
    assert asked[0] == path
    assert asked[2]["inputs"][0]["name"] == takes[0][0]  # type: ignore[index]
    page = world.client("operator").get(reverse("model", args=["minilm"])).content.decode()
    assert f"/v2/models/minilm{curl}" in page


def _specs(specs: tuple[Spec, ...]) -> list[dict[str, object]]:
    return [{"name": name, "datatype": datatype, "shape": shape} for name, datatype, shape in specs]


@pytest.mark.django_db(transaction=True)
def test_who_waits_for_the_gateway_holds_no_database_connection(
    gateway: type[_Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen slow answers would otherwise keep everybody else from their pages."""
    world, held = build_world(), []
    mine = connections["default"]  # of the thread that serves the page

    def count_held(handler: _Gateway) -> None:
        held.append(mine.connection is not None)
        answer(handler)

    answer = _Gateway.do_POST
    monkeypatch.setattr(_Gateway, "do_POST", count_held)
    values = {"model": "minilm", "text": "x", "key": world.token}
    assert world.client("viewer").post(reverse("playground"), values).status_code == 200
    assert held == [False]


def test_the_playground_says_when_the_gateway_is_away(world: World, settings: Settings) -> None:
    settings.GATEWAY_URL = "http://127.0.0.1:9"
    values = {"model": "minilm", "text": "x", "key": "tg_x"}
    assert "did not answer" in world.client("viewer").post(reverse("playground"), values).content.decode()


def test_the_playground_asks_only_for_models_one_may_see(world: World, gateway: type[_Gateway]) -> None:
    values = {"model": "minilm", "text": "x", "key": world.token}
    assert world.client("stranger").post(reverse("playground"), values).status_code in (200, 422)
    assert gateway.asked == []


def test_a_sorted_column_says_so_to_screen_readers_too(world: World) -> None:
    page = text(world.client("operator"), "models", "?sort=-created&q=mini")
    assert page.count("aria-sort=") == 1
    assert 'aria-sort="descending"><a class="table-sort-link" href="?sort=created&amp;q=mini">' in page
