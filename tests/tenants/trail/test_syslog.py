"""A syslog server gets every event once, in the order of its chain, and nothing is lost while it is away."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from hashlib import sha256
from threading import Thread

import pytest

from tenants.actions.tenants import update_tenant
from tenants.trail import syslog
from tenants.trail.models import AuditLink
from tests.tenants.conftest import SYSTEM, Cast
from tests.tenants.trail.test_chain import chain_now

MESSAGE = re.compile(
    rb"<(\d+)>1 (\S+) (\S+) tidegate - (\S+) "
    rb'\[tidegate@32473 chain="(\S+)" position="(\d+)" hash="([0-9a-f]{64})"\] \xef\xbb\xbf(.*)',
    re.DOTALL,
)


class Server:
    """Keeps what each connection brought, until it is closed by the sender."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"

    def during(self, sink: str) -> tuple[int, list[bytes]]:
        """What one tick says it sent, and what came."""
        came: list[bytes] = []

        def read() -> None:
            connection, _ = self._listener.accept()
            with connection:
                while chunk := connection.recv(1 << 16):
                    came.append(chunk)

        reader = Thread(target=read)
        reader.start()
        sent = syslog.stream(sink)
        reader.join(20)
        return sent, list(_frames(b"".join(came)))

    def close(self) -> None:
        self._listener.close()


def _frames(data: bytes) -> Iterator[bytes]:
    while data:
        length, _, rest = data.partition(b" ")
        yield rest[: int(length)]
        data = rest[int(length) :]


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def test_every_event_comes_once_in_the_order_of_its_chain(team: Cast, server: Server) -> None:
    update_tenant(by=SYSTEM, tenant=team.tenant, name='Ac"me] \\ Ω')
    chain_now()
    sent, messages = server.during(server.address)
    assert sent == len(messages) == AuditLink.objects.count()
    found = [MESSAGE.fullmatch(message) for message in messages]
    assert None not in found
    ours = [m for m in found if m and m[5].decode() == team.tenant.pk]
    assert [int(m[6]) for m in ours] == list(range(1, len(ours) + 1))
    previous = bytes(32)
    for m in ours:
        previous = sha256(previous + m[8]).digest()
        assert previous.hex() == m[7].decode()
    assert json.loads(ours[-1][8])["after"] == {"name": 'Ac"me] \\ Ω'}
    assert server.during(server.address) == (0, [])
    update_tenant(by=SYSTEM, tenant=team.tenant, name="Acme")
    chain_now()
    assert server.during(server.address)[0] == 1


def test_pages_leave_nothing_out(team: Cast, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syslog, "PAGE_ROWS", 2)
    chain_now()
    assert server.during(server.address)[0] == AuditLink.objects.count()


def test_nothing_is_lost_while_the_server_is_away(team: Cast, server: Server) -> None:
    chain_now()
    away = Server()
    away.close()
    assert syslog.stream(away.address) == 0
    assert server.during(server.address)[0] == AuditLink.objects.count()


def test_a_failure_is_a_warning(team: Cast) -> None:
    row = {
        "outcome": "failure",
        "at": "2026-03-01T12:00:00.000000Z",
        "action": "x.y",
        "chain": "a",
        "position": 1,
    }
    text = syslog.message(dict.fromkeys(syslog_columns(), None) | row | {"hash": bytes(32)})
    assert text.startswith(b"<108>1 2026-03-01T12:00:00.000000Z ")


def syslog_columns() -> list[str]:
    from tenants.trail.canonical import COLUMNS

    return list(COLUMNS)


@pytest.mark.parametrize(
    "address", ["", "udp://127.0.0.1:514", "tcp://127.0.0.1", "nonsense", "tcp://x:99999"]
)
def test_an_address_of_another_kind_sends_nothing(team: Cast, address: str) -> None:
    assert syslog.stream(address) == 0
