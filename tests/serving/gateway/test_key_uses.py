"""What a gateway tells of its keys: from where they are used, and when one is used outside its rights."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from serving.contract import KeyEntry, KeysReport, ReportBody, TenantEntry
from serving.errors import Misuse
from serving.gateway.addresses import Doorkeeper
from serving.gateway.key_uses import MAX_MISUSES, MAX_UNKNOWN, ROWS_PER_REPORT, KeyUses
from serving.gateway.snapshot import Grant
from serving.gateway.visit import RequestIds, Visit
from serving.worker.testing import EchoWorker
from tenants.keys import digest_secret, new_token, parse_token
from tests.serving.gateway.harness import PEPPER, Harness, echo_body, gateway, until

NOW = 1_700_000_000.0
IDS = RequestIds()
TENANT = TenantEntry(id="tnt_a", slug="a", name="a")


class Outbox:
    """Delivers at once, unless told otherwise."""

    def __init__(self) -> None:
        self.reports: list[KeysReport] = []
        self.is_stuck = False

    def put(self, body: KeysReport) -> None:
        self.reports.append(body)

    def has_undelivered(self, kind: type[ReportBody]) -> bool:
        return self.is_stuck


class Asked(Visit):
    def __init__(self, key_id: str, peer: str | None = "8.8.4.4") -> None:
        super().__init__({}, IDS)
        self.grant = Grant(KeyEntry(id=key_id, tenant_id="tnt_a", digest=bytes(32)), TENANT)
        self._peer = peer

    @property
    def peer(self) -> str | None:
        return self._peer


def uses() -> tuple[KeyUses, Outbox]:
    outbox = Outbox()
    return KeyUses(outbox, Doorkeeper()), outbox


def told(outbox: Outbox) -> list[tuple[str, str, int]]:
    return [(row.key_id, row.reason, row.count) for report in outbox.reports for row in report.misused]


def misuse(keys: KeyUses, key_id: str = "key_a", reason: str = "scope", digest: bytes = b"") -> None:
    keys.misused(Asked(key_id), Misuse(reason, key_id, digest=digest))


def test_from_where_a_key_is_used_is_told_when_it_changes_and_once_a_minute() -> None:
    keys, outbox = uses()
    for seconds, peer in ((0, "8.8.4.4"), (2, "8.8.4.9"), (4, "10.0.0.1"), (62, "10.0.0.1")):
        keys.seen(Asked("key_a", peer))
        keys.flush(NOW + seconds)
    rows = [row for report in outbox.reports for row in report.seen]
    assert [(row.address_class, row.network) for row in rows] == [
        ("public", "8.8.4.0/24"),
        ("private", "10.0.0.0/24"),
        ("private", "10.0.0.0/24"),
    ]


def test_a_misuse_is_told_at_once_and_then_once_a_minute_with_how_often() -> None:
    keys, outbox = uses()
    misuse(keys)
    keys.flush(NOW)
    for seconds in range(2, 62, 2):
        misuse(keys)
        keys.flush(NOW + seconds)
    assert told(outbox) == [("key_a", "scope", 1), ("key_a", "scope", 30)]


def test_what_does_not_happen_again_is_forgotten_and_is_news_when_it_does() -> None:
    keys, outbox = uses()
    for seconds in (0, 100, 101):
        misuse(keys) if seconds != 100 else None
        keys.flush(NOW + seconds)
    assert told(outbox) == [("key_a", "scope", 1), ("key_a", "scope", 1)]


def test_while_nothing_can_be_delivered_misuses_add_up() -> None:
    keys, outbox = uses()
    outbox.is_stuck = True
    for seconds in range(0, 7200, 60):
        misuse(keys)
        keys.flush(NOW + seconds)
    assert outbox.reports == []
    outbox.is_stuck = False
    keys.flush(NOW + 7200)
    assert told(outbox) == [("key_a", "scope", 120)]


def test_made_up_tokens_are_bounded_and_crowd_out_no_key_that_is_known() -> None:
    keys, outbox = uses()
    for number in range(3 * MAX_UNKNOWN):
        misuse(keys, f"key_{number}", "credential", number.to_bytes(32))
    for number in range(2 * MAX_MISUSES):
        misuse(keys, f"key_{number}", "network")
    for flush in range(100):
        keys.flush(NOW + flush / 10)
    assert len(told(outbox)) == MAX_UNKNOWN + MAX_MISUSES
    assert max(len(report.misused) for report in outbox.reports) == ROWS_PER_REPORT
    assert told(outbox)[0][1] == "network"


def test_another_token_of_the_same_key_does_not_hide_the_true_one() -> None:
    keys, outbox = uses()
    misuse(keys, reason="credential", digest=b"made up")
    misuse(keys, reason="credential", digest=b"true")
    keys.flush(NOW)
    assert {row.digest for row in outbox.reports[0].misused} == {b"made up", b"true"}


# ------------------------------------------------------------------ through a whole gateway


async def reported(harness: Harness) -> list[KeysReport]:
    """What arrived at the seam, once something did."""

    def arrived() -> list[KeysReport]:
        return [body for body in harness.seam.received() if isinstance(body, KeysReport)]

    harness.gateway._key_uses.flush(NOW)
    await until(arrived)
    return arrived()


def by_reason(reports: Iterable[KeysReport]) -> dict[str, list[tuple[str, int, str]]]:
    found: dict[str, list[tuple[str, int, str]]] = {}
    for row in (row for report in reports for row in report.misused):
        assert row.address == "127.0.0.1" and row.request_id
        found.setdefault(row.reason, []).append((row.key_id, row.count, row.detail))
    return found


@pytest.mark.parametrize("is_hot", [True, False], ids=["hot", "asgi"])
async def test_every_misuse_is_told_once_whichever_way_it_came_in(is_hot: bool) -> None:
    gone = new_token()
    async with gateway() as harness:
        harness.publish_model()
        harness.publish_model("secret", version_id="mv_secret")
        tokens = {
            "scope": harness.publish_key(scopes=("usage:read",)),
            "network": harness.publish_key(networks=("192.0.2.0/24",)),
            "model": harness.publish_key(models=("other",)),
            "expired": harness.publish_key(expires_at=1.0),
            "gone": gone.token,
        }
        fine = harness.publish_key(models=("echo",))
        known_key = key_id(fine)
        await until(lambda: known_key in harness.gateway._snapshot.keys)
        suffix = "" if is_hot else "/"
        for token in tokens.values():
            await ask(harness, token, suffix)
        for name in ("no-such-model", "secret"):
            await ask(harness, fine, suffix, name)
        await harness.client.get("/v1/models", headers={"authorization": f"Bearer {tokens['scope']}"})
        reports = await reported(harness)
    ids = {name: key_id(token) for name, token in tokens.items()}
    found = by_reason(reports)
    assert found["scope"] == [(ids["scope"], 2, "infer")]
    assert found["network"] == [(ids["network"], 1, "")]
    assert found["model"] == [(ids["model"], 1, "echo"), (known_key, 1, "secret")]
    assert sorted(found["credential"]) == sorted([(ids["expired"], 1, ""), (ids["gone"], 1, "")])
    digests = {row.key_id: row.digest for report in reports for row in report.misused if row.digest}
    assert digests[ids["gone"]] == digest_secret(gone.secret, PEPPER)


def key_id(token: str) -> str:
    parsed = parse_token(token)
    assert parsed is not None
    return parsed[0]


async def ask(harness: Harness, token: str, suffix: str, model: str = "echo") -> None:
    headers = {"authorization": f"Bearer {token}"}
    path = f"/v2/models/{model}/infer{suffix}"
    answer = await harness.client.post(path, json=echo_body(), headers=headers)
    assert answer.status_code in (401, 403, 404)


async def test_an_answered_request_tells_from_where() -> None:
    async with gateway() as harness:
        harness.publish_model()
        harness.publish_replicas(harness.address())
        async with EchoWorker(harness.address(), replica_id="rep_0"):
            await harness.until_ready()
            await harness.infer()
            (report, *_) = await reported(harness)
    (seen,) = report.seen
    assert (seen.tenant_id, seen.address_class, seen.network) == ("tnt_a", "loopback", "")
