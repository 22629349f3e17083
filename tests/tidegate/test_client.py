"""The Python client: what it sends again and what it never does, how it reads refusals, and its types."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from console.api.schema import openapi
from tests.console.api.asking import token_of
from tests.console.conftest import World
from tidegate import Refused, Tidegate, Unreachable, documents
from tidegate.errors import Damaged
from tidegate.transport import TRIES

PROBLEM = {
    "status": 422,
    "code": "invalid",
    "detail": "Reserved.",
    "request_id": "req_1",
    "errors": [{"pointer": "/slug", "detail": "Reserved."}],
}
PAGES = {
    "": {"data": [{"id": "a"}, {"id": "b"}], "has_more": True, "next_cursor": "b"},
    "b": {"data": [{"id": "c"}], "has_more": False, "next_cursor": None},
}


class Console:
    """Answers from a list, and keeps what was asked."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[httpx.Request] = []
        self.slept: list[float] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def client(self) -> Tidegate:
        client = Tidegate(key="tg_x", http=httpx.MockTransport(self))
        client.transport.sleep = self.slept.append
        return client


def test_lists_go_on_to_the_end() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=PAGES[request.url.params.get("after", "")])

    client = Tidegate(key="tg_x", http=httpx.MockTransport(answer))
    assert [row["id"] for row in client.keys.list()] == ["a", "b", "c"]


def test_a_busy_console_is_asked_again_when_it_says() -> None:
    console = Console(
        httpx.Response(429, headers={"retry-after": "7"}), httpx.Response(503), httpx.Response(200, json={})
    )
    assert console.client().me() == {}
    assert console.slept == [7.0, 1.0]


def test_a_post_that_is_repeated_carries_the_same_key() -> None:
    console = Console(httpx.ReadError("cut"), httpx.Response(201, json={"id": "tnt_1"}))
    console.client().tenants.create("acme", "Acme")
    first, again = (request.headers["idempotency-key"] for request in console.asked)
    assert first == again
    assert first[0] == first[-1] == '"'


def test_what_was_not_asked_twice_before_is_another_request() -> None:
    console = Console(httpx.Response(201, json={}), httpx.Response(201, json={}))
    client = console.client()
    client.keys.create("tnt_1", "one")
    client.keys.create("tnt_1", "one")
    assert len({request.headers["idempotency-key"] for request in console.asked}) == 2


def test_a_change_without_a_key_is_sent_once() -> None:
    console = Console(httpx.ReadError("cut"))
    with pytest.raises(Unreachable, match="does not answer"):
        console.client().tenants.change("tnt_1", name="X")
    assert len(console.asked) == 1


def test_a_file_is_sent_once(tmp_path: Path) -> None:
    file = tmp_path / "model.zip"
    file.write_bytes(b"PK")
    console = Console(httpx.Response(503, json={}))
    with pytest.raises(Refused):
        console.client().models.register("mdl_1", engine="encoder", file=file)
    assert b'filename="model.zip"' in console.asked[0].content


def test_it_gives_up_after_a_few_tries() -> None:
    console = Console(*(httpx.ConnectError("refused") for _ in range(TRIES)))
    with pytest.raises(Unreachable):
        console.client().me()
    assert console.slept == [0.5, 1.0, 2.0]


def test_a_refusal_says_what_is_wrong_where() -> None:
    with pytest.raises(Refused) as caught:
        Console(httpx.Response(422, json=PROBLEM)).client().tenants.create("admin", "Admin")
    error = caught.value
    assert (error.status, error.code, error.request_id) == (422, "invalid", "req_1")
    assert (error.errors, str(error)) == ({"/slug": "Reserved."}, "/slug: Reserved.")


def test_a_page_of_some_proxy_is_a_refusal_too() -> None:
    with pytest.raises(Refused, match="answered 502"):
        Console(httpx.Response(502, html="<h1>Bad gateway</h1>")).client().me()


@pytest.mark.parametrize(
    ("kind", "component"),
    [
        (documents.Tenant, "TenantDocument"),
        (documents.Key, "KeyDocument"),
        (documents.NewKey, "NewKeyDocument"),
        (documents.Model, "ModelDocument"),
        (documents.Version, "VersionDocument"),
        (documents.Artifact, "ArtifactDocument"),
        (documents.Deployment, "DeploymentDocument"),
        (documents.Counts, "CountsDocument"),
        (documents.UsageRow, "UsageRowDocument"),
        (documents.Usage, "UsageDocument"),
        (documents.Event, "EventDocument"),
        (documents.Export, "ExportDocument"),
    ],
)
def test_types_are_those_of_the_openapi_document(kind: type, component: str) -> None:
    described = openapi()["components"]["schemas"][component]["properties"]
    assert set(kind.__annotations__) | set(_inherited(kind)) == set(described)


def test_the_real_console_answers_the_client(world: World, console: httpx.WSGITransport) -> None:
    token = token_of(world, "manage:read", "manage:write")
    with Tidegate(key=token, http=console) as client:
        tenant = client.tenants.named("acme")
        made = client.keys.create(tenant["id"], "nightly", allowed_models=["minilm"])
        assert made["token"] is not None
        assert client.keys.revoke(made["id"])["state"] == "revoked"
        assert client.tenants.rehearse(tenant["id"], name="X")["changes"][0]["after"] == "X"
        with pytest.raises(Refused, match="No such tenant"):
            client.tenants.named("globex")
        with pytest.raises(Refused, match="right"):
            client.usage()


CONTENT = b"0123456789" * 10


class Broken(httpx.SyncByteStream):
    """Breaks off after the first bytes."""

    def __iter__(self) -> Iterator[bytes]:
        yield CONTENT[:30]
        raise httpx.ReadError("cut")


def exported(digest: str) -> Any:
    return {"id": "exp_1", "sha256": digest}


def test_a_download_that_broke_goes_on_where_it_was(tmp_path: Path) -> None:
    console = Console(httpx.Response(200, stream=Broken()), httpx.Response(206, content=CONTENT[30:]))
    file = tmp_path / "trail.csv"
    console.client().audit.download(exported(hashlib.sha256(CONTENT).hexdigest()), file)
    assert console.asked[1].headers["range"] == "bytes=30-"
    assert (file.read_bytes(), [path.name for path in tmp_path.iterdir()]) == (CONTENT, ["trail.csv"])


def test_a_download_with_another_content_is_not_kept(tmp_path: Path) -> None:
    console = Console(httpx.Response(200, content=b"else"))
    with pytest.raises(Damaged):
        console.client().audit.download(exported("0" * 64), tmp_path / "trail.csv")
    assert list(tmp_path.iterdir()) == []


def _inherited(kind: type) -> list[str]:
    return [
        name for base in getattr(kind, "__orig_bases__", ()) for name in getattr(base, "__annotations__", {})
    ]


def test_nothing_of_a_key_is_in_a_repr() -> None:
    assert "tg_secret" not in repr(Tidegate(key="tg_secret"))
    assert "tg_secret" not in repr(Tidegate(key="tg_secret").transport)
