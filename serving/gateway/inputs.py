"""What a protocol module hands over: text to tokenise, ids a client made itself, or tensors ready to go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from serving.errors import InvalidRequest
from serving.gateway.pending import Payload
from serving.wire import TensorHead

MAX_ROWS = 4096
MAX_TOKEN_IDS = MAX_ROWS * 512


class Texts(NamedTuple):
    texts: list[str]


class TokenLists(NamedTuple):
    rows: list[list[int]]


Inputs = Texts | TokenLists | Payload


def check_rows(rows: int, param: str) -> None:
    """Raises `InvalidRequest` for an empty or oversized request."""
    if not 1 <= rows <= MAX_ROWS:
        numbers = {"rows": rows, "max_rows": MAX_ROWS}
        raise InvalidRequest(
            f"a request holds 1 to {MAX_ROWS} inputs, not {rows}", param=param, numbers=numbers
        )


def pack_tokens(rows: Sequence[bytes]) -> Payload:
    """INT32 ids of all rows behind each other, and how many belong to each row."""
    row_tokens = tuple(len(ids) // 4 for ids in rows)
    tokens = sum(row_tokens)
    head = TensorHead("input_ids", "INT32", (tokens,), tokens * 4)
    return Payload(len(rows), tokens, row_tokens, (head,), [b"".join(rows)])
