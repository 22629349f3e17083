"""From where a key is used: the socket's address, or what a trusted proxy says it was."""

from __future__ import annotations

import pytest

from serving.gateway.addresses import Doorkeeper, origin_of
from serving.gateway.visit import RequestIds, Visit

NETWORKS = ("192.0.2.0/24", "2001:db8::/32")
PROXIES = ("10.0.0.0/8", "fd00::/8")


class _From(Visit):
    def __init__(self, peer: str | None, headers: dict[bytes, bytes]) -> None:
        super().__init__(headers, RequestIds())
        self._peer = peer

    @property
    def peer(self) -> str | None:
        return self._peer


def _is_let_in(peer: str | None, forwarded: bytes | None = None, proxies: tuple[str, ...] = ()) -> bool:
    headers = {} if forwarded is None else {b"x-forwarded-for": forwarded}
    return Doorkeeper(proxies).lets_in(_From(peer, headers), NETWORKS)


@pytest.mark.parametrize(
    ("peer", "is_let_in"),
    [
        ("192.0.2.1", True),
        ("192.0.3.1", False),
        ("::ffff:192.0.2.1", True),
        ("2001:db8::5", True),
        ("2001:db9::5", False),
        ("testclient", False),
        (None, False),
    ],
)
def test_the_sockets_address_decides(peer: str | None, is_let_in: bool) -> None:
    assert _is_let_in(peer) is is_let_in


@pytest.mark.parametrize("forwarded", [b"192.0.2.1", b"192.0.2.1, 10.0.0.2"])
def test_what_anybody_else_says_about_the_address_is_ignored(forwarded: bytes) -> None:
    assert not _is_let_in("203.0.113.9", forwarded)
    assert not _is_let_in("203.0.113.9", forwarded, PROXIES)
    assert not _is_let_in("10.0.0.1", forwarded)


def test_a_client_cannot_hide_behind_its_proxy_by_saying_too_much() -> None:
    padding = b"203.0.113.9, " * 200
    inside = _From("10.0.0.1", {b"x-forwarded-for": padding + b"203.0.113.9"})
    assert not Doorkeeper(PROXIES).lets_in(inside, ("10.0.0.0/8",))
    assert _is_let_in("192.0.2.1", padding, PROXIES)


@pytest.mark.parametrize(
    ("forwarded", "is_let_in"),
    [
        (b"192.0.2.1", True),
        (b"192.0.2.1, 10.0.0.2", True),
        (b"192.0.2.1, 203.0.113.9", False),
        (b"203.0.113.9, 192.0.2.1,fd00::1", True),
        (b"10.0.0.5", False),
        (b"", False),
        (b"192.0.2.1, nonsense", False),
        (b"\xff", False),
        (b"192.0.2.1," * 400, False),
    ],
)
def test_of_a_trusted_proxy_the_last_stranger_in_the_list_counts(forwarded: bytes, is_let_in: bool) -> None:
    assert _is_let_in("10.0.0.1", forwarded, PROXIES) is is_let_in


def test_what_is_no_network_is_refused_at_the_start() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        Doorkeeper(["nonsense"])


@pytest.mark.parametrize(
    ("peer", "kept"),
    [
        ("127.0.0.1", ("loopback", "")),
        ("::1", ("loopback", "")),
        ("10.1.2.3", ("private", "10.1.2.0/24")),
        ("100.64.1.2", ("private", "100.64.1.0/24")),
        ("fd00:1:2:3::4", ("private", "fd00:1:2::/48")),
        ("8.8.4.4", ("public", "8.8.4.0/24")),
        ("::ffff:8.8.4.4", ("public", "8.8.4.0/24")),
        ("2606:4700:1:2::3", ("public", "2606:4700:1::/48")),
        (None, ("unknown", "")),
    ],
)
def test_of_an_address_its_class_and_its_network_are_kept(peer: str | None, kept: tuple[str, str]) -> None:
    assert origin_of(Doorkeeper().address_of(peer, {})) == kept
