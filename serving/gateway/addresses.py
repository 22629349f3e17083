"""From where a client asks, and whether its key may be used from there.

The address is the socket's. Of a request that a trusted proxy forwards it is the last one in `x-forwarded-for`
that is no trusted proxy's itself: what stands before it the client could have written.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from serving.contract import AddressClass
from serving.gateway.visit import Visit

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
MAX_FORWARDED_BYTES = 2048


class Doorkeeper:
    """Asked for keys that are bound to networks, and now and then where a key is used."""

    def __init__(self, trusted_proxies: Iterable[str] = ()) -> None:
        """Raises `ValueError` for what is no network."""
        self._trusted = tuple(ip_network(each) for each in trusted_proxies)

    def lets_in(self, visit: Visit, networks: tuple[str, ...]) -> bool:
        """Behind a unix socket there is no address, and nobody is let in."""
        address = self.address_of(visit.peer, visit.headers)
        return address is not None and _is_within(address, _parsed(networks))

    def address_of(self, peer: str | None, headers: dict[bytes, bytes]) -> Address | None:
        address = _address(peer or "")
        forwarded = headers.get(b"x-forwarded-for")
        if address is None or forwarded is None or not _is_within(address, self._trusted):
            return address
        if len(forwarded) > MAX_FORWARDED_BYTES:
            return None  # not the proxy's own: its client must not be taken for it
        for hop in reversed(forwarded.decode("latin-1").split(",")):
            if address is None or not _is_within(address, self._trusted):
                break
            address = _address(hop.strip())
        return address


def origin_of(address: Address | None) -> tuple[AddressClass, str]:
    """What may be kept of an address: its class, and the /24 or /48 it is in, which is no person any more."""
    if address is None:
        return "unknown", ""
    if address.is_loopback:
        return "loopback", ""
    network = ip_network((address, 24 if address.version == 4 else 48), strict=False)
    return "public" if address.is_global else "private", str(network)


@lru_cache(maxsize=4096)
def _parsed(networks: tuple[str, ...]) -> tuple[Network, ...]:
    return tuple(ip_network(each) for each in networks)


def _is_within(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks)


def _address(text: str) -> Address | None:
    """An IPv4 address that arrives in IPv6's clothes on a dual-stack socket is an IPv4 address."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
