"""Who is let in, and that a refusal never says why a key does not work."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from serving.contract import ConfigChange, KeyEntry, TenantEntry
from serving.errors import DataPlaneError, InvalidApiKey, PermissionRefused, TenantSuspended
from serving.gateway.auth import Authenticator
from serving.gateway.snapshot import Snapshot
from tenants.keys import digest_secret, new_token
from tests.serving.gateway.harness import PATIENCE_S, PEPPER, Harness

NOW = 1_700_000_000.0
TOKEN = new_token()


def authenticator(key: dict[str, Any] | None = None, tenant: dict[str, Any] | None = None) -> Authenticator:
    digest = digest_secret(TOKEN.secret, PEPPER)
    entry = KeyEntry(**({"id": TOKEN.id, "tenant_id": "tnt_a", "digest": digest} | (key or {})))
    owner = TenantEntry(**({"id": "tnt_a", "slug": "a", "name": "a"} | (tenant or {})))
    snapshot = Snapshot()
    snapshot.apply([ConfigChange("key", entry.id, 1, entry), ConfigChange("tenant", owner.id, 2, owner)])
    return Authenticator(snapshot, PEPPER)


@pytest.mark.parametrize(
    "headers",
    [
        {b"authorization": b"Bearer " + TOKEN.token.encode()},
        {b"authorization": b"bearer  " + TOKEN.token.encode() + b" "},
        {b"x-api-key": TOKEN.token.encode()},
    ],
)
def test_a_valid_key_is_let_in(headers: dict[bytes, bytes]) -> None:
    grant = authenticator().authenticate(headers, NOW)
    assert (grant.tenant.id, grant.key.id) == ("tnt_a", TOKEN.id)


BAD_HEADERS = [
    {},
    {b"authorization": b""},
    {b"authorization": b"Bearer"},
    {b"authorization": b"Bearer "},
    {b"authorization": b"Basic dGc6dGc="},
    {b"authorization": TOKEN.token.encode()},
    {b"authorization": b"Bearer " + TOKEN.token.encode() + b"x"},
    {b"authorization": b"Bearer " + TOKEN.token.encode()[:-1]},
    {b"authorization": b"Bearer " + TOKEN.token.encode()[:-1] + b"\xff"},
    {b"authorization": b"Bearer " + new_token().token.encode()},
    {b"authorization": b"Bearer tg_" + TOKEN.id[4:].encode() + b"_" + b"A" * 43},
    {b"authorization": b"Basic x", b"x-api-key": TOKEN.token.encode()},
    {b"x-api-key": b"tg__"},
]


@pytest.mark.parametrize("headers", BAD_HEADERS)
def test_anything_else_is_refused(headers: dict[bytes, bytes]) -> None:
    with pytest.raises(InvalidApiKey):
        authenticator().authenticate(headers, NOW)


@pytest.mark.parametrize(
    ("key", "tenant", "error"),
    [
        ({"expires_at": NOW}, {}, InvalidApiKey),
        ({"expires_at": NOW - 1}, {}, InvalidApiKey),
        ({"tenant_id": "tnt_gone"}, {}, InvalidApiKey),
        ({"digest": bytes(32)}, {}, InvalidApiKey),
        ({"scopes": ()}, {}, PermissionRefused),
        ({"scopes": ("admin",)}, {}, PermissionRefused),
        ({}, {"is_active": False}, TenantSuspended),
    ],
)
def test_a_key_that_may_not_is_refused(
    key: dict[str, Any], tenant: dict[str, Any], error: type[DataPlaneError]
) -> None:
    headers = {b"authorization": b"Bearer " + TOKEN.token.encode()}
    with pytest.raises(error):
        authenticator(key, tenant).authenticate(headers, NOW)


async def test_all_keys_that_do_not_work_are_refused_in_the_same_words(echo: Harness) -> None:
    revoked = echo.publish_key()
    expired = echo.publish_key(expires_at=time.time() - 1)
    bodies = set()
    echo.seam.delete("key", "key_" + revoked.split("_")[1])
    await echo.gateway.follower.poll()
    for token in ("nonsense", new_token().token, revoked, expired):
        response = await echo.infer(authorization=f"Bearer {token}", x_request_id="same")
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        bodies.add(response.content)
    assert len(bodies) == 1


async def test_a_revoked_key_is_refused_by_itself(echo: Harness) -> None:
    token = echo.publish_key()
    await echo.gateway.follower.poll()
    headers = {"authorization": f"Bearer {token}"}
    assert (await echo.client.get("/v1/models", headers=headers)).status_code == 200
    echo.seam.delete("key", "key_" + token.split("_")[1])
    async with asyncio.timeout(PATIENCE_S):
        while (await echo.client.get("/v1/models", headers=headers)).status_code != 401:
            pass


async def test_a_suspended_tenant_is_refused(echo: Harness) -> None:
    echo.publish_tenant(is_active=False)
    await echo.gateway.follower.poll()
    response = await echo.infer()
    assert (response.status_code, response.json()["code"]) == (403, "tenant_suspended")


async def test_a_model_not_granted_looks_like_one_that_does_not_exist(echo: Harness) -> None:
    echo.publish_model("theirs", version_id="mv_theirs", tenant_ids=("tnt_b",))
    limited = {"authorization": f"Bearer {echo.publish_key(models=('other',))}"}
    await echo.gateway.follower.poll()
    answers = [
        await echo.client.post("/v2/models/theirs/infer", json={"inputs": []}, headers=echo.auth),
        await echo.client.post("/v2/models/nothing/infer", json={"inputs": []}, headers=echo.auth),
        await echo.client.post("/v2/models/echo/infer", json={"inputs": []}, headers=limited),
    ]
    for name, answer in zip(("theirs", "nothing", "echo"), answers, strict=True):
        assert answer.status_code == 404
        assert answer.json()["error"] == f"the model '{name}' does not exist"
    listed = await echo.client.get("/v1/models", headers=limited)
    assert listed.json()["data"] == []
    assert (await echo.client.get("/v1/models/echo", headers=limited)).status_code == 404


async def test_a_duplicate_key_header_is_refused(echo: Harness) -> None:
    headers = [("authorization", f"Bearer {echo.token}"), ("authorization", "Bearer other")]
    response = await echo.client.get("/v1/models", headers=headers)
    assert response.status_code == 400


@pytest.mark.parametrize(
    ("networks", "status"), [(("192.0.2.0/24",), 403), (("127.0.0.0/8", "::1/128"), 200)]
)
async def test_a_key_is_let_in_from_its_networks_only(
    echo: Harness, networks: tuple[str, ...], status: int
) -> None:
    token = echo.publish_key(networks=networks)
    await echo.gateway.follower.poll()
    for _ in range(2):  # the second head is a known one
        answer = await echo.infer(authorization=f"Bearer {token}")
        assert answer.status_code == status
        if status == 403:
            assert answer.json()["code"] == "permission_denied"
