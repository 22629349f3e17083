"""Sends one message to an address that people typed, without letting them reach what is behind our walls.

The name is resolved once and the connection goes to that very address, so that nothing can be swapped between
the look and the call. No redirect is followed, no proxy is asked, and of the answer only the status line is read, and as much of
its body as the caller wants to keep.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

from tenants.trail.webhooks.schedule import Answer

TIMEOUT_S = 5.0
"""For everything after the name is resolved."""
_STATUS_LINE_BYTES = 4096
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})(?: |\r|$)")
_VISIBLE = re.compile(r"[!-~]+")
_CARRIERS = tuple(ip_network(each) for each in ("64:ff9b::/96", "64:ff9b:1::/48", "::ffff:0:0:0/96", "::/96"))
"""IPv6 addresses whose last 32 bits are an IPv4 one: NAT64 (RFC 6052, RFC 8215), translated, compatible."""
_Address = IPv4Address | IPv6Address


class Refused(ValueError):
    """The address is not one that may be sent to; the message is a sentence for whoever typed it."""


def checked_url(url: str, allow_private: bool) -> SplitResult:
    """Raises `Refused` for what is no address of a web server out there; resolves nothing."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Refused("This is no address.") from error
    schemes = ("https", "http") if allow_private else ("https",)
    if parts.scheme not in schemes or not parts.hostname or port == 0 or not _VISIBLE.fullmatch(url):
        raise Refused("The address begins with https:// and names a host.")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise Refused("The address holds no name, no password and no fragment.")
    literal = _literal(parts.hostname)
    if literal is not None and not may_reach(literal, allow_private):
        raise Refused("This address lies inside the network.")
    return parts


def may_reach(address: _Address, allow_private: bool) -> bool:
    """Public addresses; with `allow_private` also loopback and private ones, never link-local (metadata)."""
    inner = _inner(address)
    if inner.is_link_local or inner.is_multicast or inner.is_unspecified or _is_site_local(inner):
        return False
    return inner.is_global or (allow_private and (inner.is_private or inner.is_loopback))


def post(
    url: str, body: bytes, headers: Mapping[str, str], allow_private: bool, keep_bytes: int = 0
) -> Answer:
    """Never raises: what went wrong is in the answer, whose body is read up to `keep_bytes`."""
    begun, status, kept = time.monotonic(), None, b""
    try:
        (status, kept), error = _exchange(url, body, headers, allow_private, keep_bytes), ""
    except Refused as refused:
        error = str(refused)
    except TimeoutError:
        error = "It did not answer in time."
    except (OSError, UnicodeError, ValueError) as failure:
        error = f"It could not be reached ({type(failure).__name__})."
    return Answer(status, error, int((time.monotonic() - begun) * 1000), kept)


def _exchange(
    url: str, body: bytes, headers: Mapping[str, str], allow_private: bool, keep_bytes: int
) -> tuple[int, bytes]:
    parts = checked_url(url, allow_private)
    address = _resolved(parts, allow_private)
    until = time.monotonic() + TIMEOUT_S
    with _connected(parts, address, until) as connection:
        connection.settimeout(_left(until))
        connection.sendall(_request(parts, body, headers))
        status, read = _status(connection, until)
        return status, _kept(connection, until, read, keep_bytes) if keep_bytes else b""


def _resolved(parts: SplitResult, allow_private: bool) -> tuple[str, int]:
    """Where the connection goes. One inner address among the answers condemns the name."""
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    found = [str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    if not found or not all(may_reach(ip_address(each.partition("%")[0]), allow_private) for each in found):
        raise Refused("This address lies inside the network.")
    return found[0], port


def _connected(parts: SplitResult, address: tuple[str, int], until: float) -> socket.socket:
    plain = socket.create_connection(address, timeout=_left(until))
    if parts.scheme == "http":
        return plain
    try:
        plain.settimeout(_left(until))
        return ssl.create_default_context().wrap_socket(plain, server_hostname=parts.hostname)
    except OSError:
        plain.close()
        raise


def _request(parts: SplitResult, body: bytes, headers: Mapping[str, str]) -> bytes:
    host = parts.netloc.encode("idna").decode() if not parts.netloc.isascii() else parts.netloc
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [
        f"POST {target} HTTP/1.1",
        f"host: {host}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        "user-agent: tidegate-audit",
        "connection: close",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


def _status(connection: socket.socket, until: float) -> tuple[int, bytes]:
    """However slowly it drips: `until` holds for all of it. Raises `OSError`, `ValueError` for no HTTP."""
    line = b""
    while b"\n" not in line and len(line) < _STATUS_LINE_BYTES:
        connection.settimeout(_left(until))
        chunk = connection.recv(_STATUS_LINE_BYTES)
        if not chunk:
            break
        line += chunk
    found = _STATUS.match(line)
    if found is None:
        raise ValueError("no HTTP status line")
    return int(found[1]), line


def _kept(connection: socket.socket, until: float, read: bytes, keep_bytes: int) -> bytes:
    """The JSON object after the head, as far as it came: what is late or broken off takes no status back."""
    most = len(read) + keep_bytes
    try:
        while len(read) < most and not _has_object(read):
            connection.settimeout(_left(until))
            if not (chunk := connection.recv(_STATUS_LINE_BYTES)):
                break
            read += chunk
    except OSError:
        pass
    body = read[:most].partition(b"\r\n\r\n")[2]
    return body[body.find(b"{") : body.rfind(b"}") + 1]


def _has_object(read: bytes) -> bool:
    """Whole, in one chunk or without chunks."""
    body = read.partition(b"\r\n\r\n")[2].rstrip()
    return body.endswith((b"}", b"}\r\n0"))


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _literal(host: str) -> _Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _is_site_local(address: _Address) -> bool:
    """fec0::/10, of which Python thinks that it is out there."""
    return isinstance(address, IPv6Address) and address.is_site_local


def _inner(address: _Address) -> _Address:
    """The IPv4 address that an IPv6 one carries (mapped, 6to4, Teredo, NAT64, …), else itself."""
    if isinstance(address, IPv4Address) or address.is_loopback or address.is_unspecified:
        return address
    if any(address in network for network in _CARRIERS):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo[1] if address.teredo else None
    return address.ipv4_mapped or address.sixtofour or teredo or address
