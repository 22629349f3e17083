"""After the one answer that shows it, a key's secret is found nowhere, however it was used or misused.

Looked through: every other answer, all that every process logged or wrote to its disk (the database's own files
among it), every row, every export, all that Valkey holds, and the metrics.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.processes.running_demo import RunningDemo, eventually

pytestmark = [pytest.mark.processes, pytest.mark.torch]

TOKEN = re.compile(r"tg_[a-z0-9]{12}_[A-Za-z0-9_-]{43}")
SCOPES = ["infer", "manage:read", "manage:write", "usage:read", "audit:export"]
SHOWN_BY_DESIGN = {"demo.json"}

# Every row of every table, as text; then every export there is; then all of Valkey.
INSIDE = """
import json, sys
from django.conf import settings
from django.db import connection
from django.utils import timezone
from redis import Redis
from tenants.actors import Actor
from tenants.models import Tenant
from tenants.scoping import all_tenants
from tenants.trail.exports import request_export, run_export
from tenants.trail.formats import available_formats
from tenants.trail.search import Asked
parts, found = json.loads({parts!r}), []
for name in available_formats():
    asked = request_export(by=Actor.system("tests"), tenant=None, format=name, asked=Asked())
    run_export(asked.pk, timezone.now())
with all_tenants("a test looks at every row"), connection.as_owner(), connection.cursor() as cursor:
    for table in connection.introspection.table_names(cursor):
        for part in parts:
            sql = f'SELECT count(*) FROM "{{table}}" t WHERE strpos(t::text, %s) > 0 OR strpos(t::text, %s) > 0'
            cursor.execute(sql, [part, part.encode().hex()])
            found += [table] if cursor.fetchone() != (0,) else []
client = Redis.from_url(settings.VALKEY_URL)
for key in client.scan_iter():
    held = key + (client.dump(key) or b"")
    found += [repr(key) for part in parts if part.encode() in held]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDemo]:
    running = RunningDemo(tmp_path_factory.mktemp("secrets") / "var")
    try:
        running.start()
        yield running
    finally:
        if running.process is not None:
            running.stop(signal.SIGTERM)


def test_a_keys_secret_is_found_nowhere(demo: RunningDemo) -> None:
    person = _signed_in(demo)
    tokens = [_made_on_the_page(demo, person)]
    tokens += _made_by_the_api(demo, tokens[0])
    demo_keys = [tenant["api_key"] for tenant in demo.facts["tenants"].values()]
    everybodys = [*tokens, *demo_keys]
    _wait_known(demo, tokens)
    answers = [answer for token in everybodys for answer in _used(demo, token)]
    answers += _revoked_and_used(demo, person, tokens)
    answers += _read(demo, person, tokens[0])
    for token in everybodys:
        part = token[-30:-1]  # also found where it was cut off, or written without its prefix
        assert [where for where, text in answers if part in text] == []
    parts = [token[-30:-1] for token in everybodys]
    assert json.loads(demo.manage(INSIDE.format(parts=json.dumps(parts))).splitlines()[-1]) == []
    log = [line for line in demo.log().splitlines() if not line.startswith("try ")]
    assert [line for line in log if any(part in line for part in parts)] == []
    assert _on_the_disk(demo.state_dir, parts) <= SHOWN_BY_DESIGN


# ---------------------------------------------------------------- making them


def _signed_in(demo: RunningDemo) -> httpx.Client:
    client = httpx.Client(base_url=demo.facts["console"], follow_redirects=True, timeout=30)
    client.get("/accounts/login/")
    typed = {"login": demo.facts["username"], "password": demo.facts["password"]}
    assert _post(client, "/accounts/login/", typed).status_code == 200
    return client


def _post(client: httpx.Client, path: str, form: dict[str, Any]) -> httpx.Response:
    token = client.cookies.get("csrftoken") or client.cookies.get("__Host-csrftoken") or ""
    headers = {"referer": f"{client.base_url}{path}", "origin": str(client.base_url).rstrip("/")}
    return client.post(path, data={"csrfmiddlewaretoken": token, **form}, headers=headers)


def _made_on_the_page(demo: RunningDemo, person: httpx.Client) -> str:
    path = "/tenants/acme-chat/keys/new"
    person.get(path)
    page = _post(person, path, {"name": "page", "scopes": SCOPES, "expires": "never"})
    return TOKEN.findall(page.text)[0]  # type: ignore[no-any-return]


def _made_by_the_api(demo: RunningDemo, token: str) -> list[str]:
    """Made, and rolled from one of these; the repetition of a request shows no token."""
    client = _api(demo, token)
    tenant = client.get("/me").json()["tenants"][0]["id"]
    body, once = {"name": "api", "scopes": SCOPES}, {"Idempotency-Key": '"once"'}
    made = client.post(f"/tenants/{tenant}/keys", json=body, headers=once).json()
    assert TOKEN.fullmatch(made.get("token", "")), made
    assert client.post(f"/tenants/{tenant}/keys", json=body, headers=once).json()["token"] is None
    rolled = client.post(f"/keys/{made['id']}/roll", json={"overlap_s": 3600}).json()
    return [made["token"], rolled["token"]]


def _api(demo: RunningDemo, token: str) -> httpx.Client:
    headers = {"authorization": f"Bearer {token}"}
    return httpx.Client(base_url=f"{demo.facts['console']}/api/v1", headers=headers, timeout=30)


def _wait_known(demo: RunningDemo, tokens: list[str]) -> None:
    def is_known() -> bool:
        return all(
            httpx.get(f"{demo.facts['gateway']}/v1/models", headers={"x-api-key": token}).status_code == 200
            for token in tokens
        )

    eventually(is_known, 10, "the gateway knows the new keys")


# ---------------------------------------------------------------- using them


def _used(demo: RunningDemo, token: str) -> list[tuple[str, str]]:
    """In its place and in every wrong one, at the gateway and at the API; each answer whole."""
    model = demo.facts["model"]
    basic = b64encode(f"user:{token}".encode()).decode()
    good = {"model": model, "input": "hello"}
    bearer = {"authorization": f"Bearer {token}"}
    embeddings = f"{demo.facts['gateway']}/v1/embeddings"
    infer = f"{demo.facts['gateway']}/v2/models/{model}"
    api = f"{demo.facts['console']}/api/v1"
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", embeddings, {"json": good, "headers": bearer}),
        ("POST", embeddings, {"json": good, "headers": {"x-api-key": token}}),
        ("POST", f"{embeddings}?api_key={token}&key={token}", {"json": good}),
        ("POST", embeddings, {"json": good, "headers": {"authorization": f"Basic {basic}"}}),
        ("POST", embeddings, {"json": good, "headers": {"authorization": token}}),
        ("POST", embeddings, {"json": good, "headers": {"cookie": f"key={token}"}}),
        ("POST", embeddings, {"json": good, "headers": {"authorization": f"Bearer {token}x"}}),
        ("POST", embeddings, {"json": {"model": token, "input": token}, "headers": bearer}),
        ("POST", embeddings, {"json": {**good, token: token}, "headers": bearer}),
        ("POST", embeddings, {"content": f'{{"model": {token}', "headers": bearer}),
        ("POST", embeddings, {"json": good, "headers": {**bearer, "x-request-id": token}}),
        ("POST", embeddings, {"json": good, "headers": {**bearer, "idempotency-key": f'"{token}"'}}),
        ("POST", embeddings, {"json": good, "headers": {**bearer, "user-agent": token}}),
        ("POST", embeddings, {"json": good, "headers": {**bearer, "x-tidegate-priority": token}}),
        ("GET", f"{demo.facts['gateway']}/v1/models/{token}", {"headers": bearer}),
        ("GET", f"{demo.facts['gateway']}/{token}", {"headers": bearer}),
        ("POST", f"{infer}/infer", {"json": {"inputs": token}, "headers": bearer}),
        ("POST", f"{infer}/versions/{token}/infer", {"json": {"inputs": []}, "headers": bearer}),
        ("POST", f"{infer}/generate_stream", {"json": {"text_input": "hello"}, "headers": bearer}),
        ("GET", f"{api}/me", {"headers": bearer}),
        ("GET", f"{api}/keys?after={token}&{token}=1", {"headers": bearer}),
        ("GET", f"{api}/keys/{token}", {"headers": bearer}),
        ("GET", f"{api}/{token}", {"headers": {**bearer, "x-request-id": token, "user-agent": token}}),
        ("GET", f"{api}/keys?api_key={token}", {}),
        ("GET", f"{api}/keys", {"headers": {"authorization": f"Basic {basic}"}}),
        ("POST", f"{api}/tenants", {"json": {"slug": token, token: token}, "headers": bearer}),
        ("DELETE", f"{api}/members/{token}", {"headers": {**bearer, "user-agent": token}}),
        ("GET", f"{demo.facts['console']}/{token}/", {}),
    ]
    with httpx.Client(timeout=30) as client:
        return [_whole(client.request(method, url, **rest)) for method, url, rest in asked]


def _whole(answer: httpx.Response) -> tuple[str, str]:
    where = f"{answer.request.method} {answer.request.url.path} {answer.status_code}"
    return where, f"{answer.headers!r}\n{answer.text}"


def _revoked_and_used(
    demo: RunningDemo, person: httpx.Client, tokens: list[str]
) -> Iterator[tuple[str, str]]:
    """The use of a revoked key comes into the trail, by which the report of it went the whole way."""
    client, gone = _api(demo, tokens[0]), tokens[1]
    yield _whole(client.post(f"/keys/key_{gone[3:15]}/revoke", json={}))
    url = f"{demo.facts['gateway']}/v1/models"

    def is_refused() -> bool:
        return httpx.get(url, headers={"x-api-key": gone}).status_code == 401

    def is_written() -> bool:
        return "key.misused" in client.get("/audit?action=key.misused").text

    eventually(is_refused, 10, "the revoked key is refused")
    eventually(is_written, 30, "its use is in the trail")


def _read(demo: RunningDemo, person: httpx.Client, token: str) -> Iterator[tuple[str, str]]:
    for path in ("/tenants/acme-chat", "/audit/", "/usage/", "/"):
        yield _whole(person.get(path))
    client = _api(demo, token)
    for path in ("/keys", "/audit", "/me", "/usage"):
        yield _whole(client.get(path))
    yield _whole(httpx.get(f"{demo.facts['gateway']}/metrics"))


def _on_the_disk(directory: Path, parts: list[str]) -> set[str]:
    """Names of files in which one of the parts stands."""
    patterns = [word for part in parts for word in ("-e", part)]
    done = subprocess.run(
        ["grep", "-rlaF", *patterns, "--", str(directory)], capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    return {Path(line).name for line in done.stdout.splitlines()}
