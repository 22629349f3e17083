"""Messages go where they were meant to go, and nowhere inside."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from threading import Event, Thread
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tenants.trail.webhooks import post as posting
from tenants.trail.webhooks.post import Refused, checked_url, may_reach, post


class Receiver:
    """Answers each connection with the same bytes and keeps what came."""

    def __init__(self, answer: bytes) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/in?a=b"
        self.came: list[bytes] = []
        self._answer = answer
        self._thread = Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                self.came.append(_message(connection))
                connection.sendall(self._answer)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)


def _message(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(1 << 16)
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
    while len(body) < length:
        body += connection.recv(1 << 16)
    return head + b"\r\n\r\n" + body


@pytest.fixture
def answering() -> Iterator[Receiver]:
    made = Receiver(b"HTTP/1.1 204 No Content\r\n\r\n")
    yield made
    made.close()


def test_a_message_is_posted_with_its_headers_and_the_status_comes_back(answering: Receiver) -> None:
    answer = post(answering.url, b'{"a":1}', {"webhook-id": "evt_1"}, True)
    assert (answer.status, answer.error) == (204, "")
    head, _, body = answering.came[0].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert (lines[0], body) == (b"POST /in?a=b HTTP/1.1", b'{"a":1}')
    assert b"webhook-id: evt_1" in lines and b"content-type: application/json" in lines


def test_loopback_is_refused_unless_the_setting_allows_it(answering: Receiver) -> None:
    answer = post(answering.url, b"", {}, False)
    assert answer.status is None and answer.error and answering.came == []


@pytest.mark.parametrize("said", [b"SSH-2.0-x\r\n", b"", b"HTTP/1.1 2x4\r\n", b"x" * 9000])
def test_what_speaks_no_http_is_a_failure(said: bytes) -> None:
    receiver = Receiver(said)
    try:
        assert post(receiver.url, b"", {}, True).status is None
    finally:
        receiver.close()


def test_a_redirect_is_not_followed() -> None:
    target = Receiver(b"HTTP/1.1 200 OK\r\n\r\n")
    source = Receiver(b"HTTP/1.1 307 Go\r\nlocation: " + target.url.encode() + b"\r\n\r\n")
    try:
        assert post(source.url, b"", {}, True).status == 307
        assert target.came == []
    finally:
        source.close()
        target.close()


def test_who_never_answers_is_left_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posting, "TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        answer = post(f"http://127.0.0.1:{silent.getsockname()[1]}/", b"", {}, True)
    assert answer.error == "It did not answer in time."


def test_nobody_there_is_a_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert post(f"http://127.0.0.1:{port}/", b"", {}, True).status is None


@pytest.mark.parametrize(
    "found",
    [["10.0.0.1"], ["93.184.216.34", "127.0.0.1"], ["169.254.169.254"], ["::1"], ["fe80::1%eth0"], []],
)
def test_a_name_that_leads_inside_is_refused_when_it_is_resolved(
    monkeypatch: pytest.MonkeyPatch, found: list[str]
) -> None:
    def resolve(*_: object, **__: object) -> list[object]:
        return [(0, 0, 0, "", (address, 443)) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: pytest.fail("connected"))
    assert post("https://rebinding.example/", b"", {}, False).error == "This address lies inside the network."


@pytest.mark.parametrize(
    ("address", "outside", "with_private"),
    [
        ("93.184.216.34", True, True),
        ("2606:4700::1111", True, True),
        ("127.0.0.1", False, True),
        ("::1", False, True),
        ("10.1.2.3", False, True),
        ("192.168.0.1", False, True),
        ("fd00::1", False, True),
        ("::ffff:10.0.0.1", False, True),
        ("64:ff9b::a00:1", False, True),
        ("2002:7f00:1::", False, True),
        ("64:ff9b:1::a00:1", False, True),
        ("::ffff:0:a00:1", False, True),
        ("::7f00:1", False, True),
        ("::a9fe:a9fe", False, False),
        ("fec0::1", False, False),
        ("100.64.0.1", False, False),
        ("169.254.169.254", False, False),
        ("::ffff:169.254.169.254", False, False),
        ("fe80::1", False, False),
        ("0.0.0.0", False, False),  # noqa: S104 - that is the point
        ("224.0.0.1", False, False),
    ],
)
def test_which_addresses_may_be_reached(address: str, outside: bool, with_private: bool) -> None:
    assert may_reach(ip_address(address), False) is outside
    assert may_reach(ip_address(address), True) is with_private


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "ftp://example.org/",
        "http://example.org/",
        "https:///path",
        "https://user:secret@example.org/",
        "https://example.org/#part",
        "https://example.org:99999/",
        "https://example.org:0/",
        "https://[::1/",
        "https://127.0.0.1/",
        "https://[fd00::1]/",
        "https://example.org/a b",
        "https://example.org/\r\nx: y",
        "https://exämple.org/",
    ],
)
def test_addresses_of_another_kind_are_refused(url: str) -> None:
    with pytest.raises(Refused):
        checked_url(url, False)


def test_a_public_address_with_port_and_query_is_fine() -> None:
    assert checked_url("https://siem.example.org:8443/in?x=1", False).port == 8443


# ---------------------------------------------------------------- attacks, with what the system really does


NUMBERS = (
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "127.1",
    "0x7f.1",
    "0",
    "localhost",
    "[::ffff:127.0.0.1]",
)


@pytest.mark.parametrize("host", NUMBERS)
def test_no_spelling_of_loopback_reaches_it(answering: Receiver, host: str) -> None:
    port = urlsplit(answering.url).port
    answer = post(f"https://{host}:{port}/", b"", {}, False)
    assert (answer.status, answer.error) == (None, "This address lies inside the network.")
    assert answering.came == []


@pytest.mark.parametrize("host", ["169.254.169.254", "2852039166", "0xa9fea9fe", "[::ffff:a9fe:a9fe]"])
def test_a_clouds_metadata_is_out_of_reach_even_where_private_addresses_are_allowed(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: pytest.fail("connected"))
    answer = post(f"http://{host}/latest/meta-data/", b"", {}, True)
    assert answer.error == "This address lies inside the network."


def test_a_name_is_asked_for_once_and_the_connection_goes_to_the_address_that_was_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter([["93.184.216.34"], ["127.0.0.1"]])
    connected: list[tuple[str, int]] = []

    def resolve(*_: object, **__: object) -> list[object]:
        return [(0, 0, 0, "", (address, 443)) for address in next(answers)]

    def connect(address: tuple[str, int], **_: object) -> socket.socket:
        connected.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "create_connection", connect)
    post("https://rebinding.example/", b"", {}, False)
    assert connected == [("93.184.216.34", 443)]
    assert next(answers) == ["127.0.0.1"]


def test_who_cannot_prove_their_name_gets_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A certificate of one's own making, for the right name: the event is not sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*self_signed(tmp_path, "localhost"))
    came: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            came.append(context.wrap_socket(connection, server_side=True).recv(1 << 16))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        answer = post(f"https://localhost:{listener.getsockname()[1]}/", b"the event", {}, True)
        thread.join(10)
    assert (answer.status, answer.error) == (None, "It could not be reached (SSLCertVerificationError).")
    assert b"".join(came) == b""


@pytest.mark.parametrize("drop", [b"H", b"HTTP/1.1 100 Continue\r\n"[:9]])
def test_an_answer_that_drips_is_left_when_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch, drop: bytes
) -> None:
    monkeypatch.setattr(posting, "TIMEOUT_S", 0.2)
    is_over = Event()

    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            while not is_over.wait(0.02):
                connection.sendall(drop)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=drip, args=(listener,), daemon=True)
        thread.start()
        answer = post(f"http://127.0.0.1:{listener.getsockname()[1]}/", b"", {}, True)
        is_over.set()
        thread.join(10)
    assert answer.status is None and answer.error


def test_of_a_huge_answer_the_first_line_is_read_and_no_more() -> None:
    receiver = Receiver(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200_000)
    try:
        assert post(receiver.url, b"", {}, True).status == 200
    finally:
        receiver.close()


def self_signed(directory: Path, name: str) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(who)
        .issuer_name(who)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    at, of = directory / "certificate.pem", directory / "key.pem"
    at.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    of.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return at, of


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (b'{"errcode":0}', b'{"errcode":0}'),
        (b'd\r\n{"errcode":0}\r\n0\r\n\r\n', b'{"errcode":0}'),
        (b"{" + b"x" * 100_000, b""),
        (b"", b""),
    ],
)
def test_of_a_body_as_much_is_kept_as_was_asked_for(said: bytes, kept: bytes) -> None:
    receiver = Receiver(b"HTTP/1.1 200 OK\r\n\r\n" + said)
    try:
        answer = post(receiver.url, b"{}", {}, True, 1000)
    finally:
        receiver.close()
    assert (answer.status, answer.body) == (200, kept)
