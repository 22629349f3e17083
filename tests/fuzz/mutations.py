"""Valid bytes, made a little invalid: near misses reach deeper than noise."""

from __future__ import annotations

from hypothesis import strategies as st

INTERESTING = [
    b"", b"\0", b"\xff", b"\r", b"\n", b"\r\n", b"\r\n\r\n", b" ", b"\t", b":", b";", b",", b'"', b"\\", b"[", b"]",
    b"{", b"}", b"0", b"-1", b"-0", b"1e999", b"9" * 20, b"9" * 400, b"NaN", b"null", b"true", b'"\\ud800"', b"\\u0000",
    b"\xed\xa0\x80", b"\xc0\x80", b"\xef\xbb\xbf", b"0\r\n\r\n", b"[" * 40, b"]" * 40, b'{"a":' * 40,
    b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff",
]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn, valid: st.SearchStrategy[bytes]) -> bytes:
    """A valid example after up to five changes; as often as not unchanged."""
    data = draw(valid)
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, 2, 5]))):
        at = draw(st.integers(0, len(data)))
        length = draw(st.sampled_from([0, 1, 2, 4, 16, 200]))
        kind = draw(st.sampled_from(["insert", "replace", "delete", "repeat", "cut", "flip"]))
        piece = draw(st.sampled_from(INTERESTING) | st.binary(max_size=8))
        if kind == "insert":
            data = data[:at] + piece + data[at:]
        elif kind == "replace":
            data = data[:at] + piece + data[at + len(piece) :]
        elif kind == "delete":
            data = data[:at] + data[at + length :]
        elif kind == "repeat":
            data = data[:at] + data[at : at + length] * 3 + data[at + length :]
        elif kind == "cut":
            data = data[:at]
        elif data:
            at = min(at, len(data) - 1)
            data = data[:at] + bytes([data[at] ^ (1 << draw(st.integers(0, 7)))]) + data[at + 1 :]
    return data


def cuts(data: bytes, sizes: list[int]) -> list[bytes]:
    """The data in pieces of these sizes, by turns."""
    out, at, turn = [], 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)] if sizes else len(data)
        out.append(data[at : at + size])
        at, turn = at + size, turn + 1
    return out
