"""The OpenAI API's embeddings and models, as its SDK speaks them."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import Any, Literal

import msgspec
import numpy as np
import orjson

from serving.contract import ModelEntry, SlaClass, VersionEntry
from serving.errors import DataPlaneError, EngineFailed, InvalidJson, InvalidRequest
from serving.gateway.inputs import MAX_ROWS, MAX_TOKEN_IDS, Inputs, Texts, TokenLists, check_rows
from serving.gateway.json_limits import check_depth
from serving.gateway.pending import Answer, Payload
from serving.gateway.routing import Lane
from serving.gateway.tensors import COUNTED_BYTES, least_strings
from serving.wire import TensorHead

ENDPOINT = "embeddings"
OUTPUT = "embedding"
SLICE_ROWS = 64
JSON_TYPE = b"content-type: application/json\r\n"
_SPACE = b" \t\r\n"


class EmbeddingsBody(msgspec.Struct):
    model: str
    input: msgspec.Raw
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None


_decode = msgspec.json.Decoder(EmbeddingsBody).decode
_decode_text = msgspec.json.Decoder(str).decode
_decode_texts = msgspec.json.Decoder(list[str]).decode
_decode_tokens = msgspec.json.Decoder(list[int]).decode
_decode_token_lists = msgspec.json.Decoder(list[list[int]]).decode
_encode = msgspec.json.Encoder().encode


class EmbeddingsCall:
    """One parsed `/v1/embeddings` request."""

    __slots__ = ("body",)
    endpoint = ENDPOINT
    timeout_us: int | None = None
    sla_class: SlaClass | None = None

    def __init__(self, content: bytes) -> None:
        """Raises `InvalidJson` or `InvalidRequest`."""
        check_depth(content)
        try:
            self.body = _decode(content)
        except msgspec.ValidationError as error:
            raise InvalidRequest(str(error), param=_param(str(error))) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidJson(f"the body is not valid JSON: {error}") from None

    @property
    def events(self) -> None:
        """Embeddings come as a whole."""
        return None

    @property
    def model(self) -> str:
        return self.body.model

    def inputs(self, version: VersionEntry) -> Inputs:
        """Raises `InvalidRequest`."""
        width = embedding_width(version)
        if version.engine != "encoder" or width is None:
            raise InvalidRequest(f"the model {version.model!r} makes no embeddings of text", param="model")
        wanted = self.body.dimensions
        if wanted is not None and width > 0 and wanted != width:
            raise InvalidRequest(f"this model's embeddings have {width} dimensions", param="dimensions")
        try:
            return _inputs(memoryview(self.body.input))
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            message = f"input must be a string, a list of strings, or token ids: {error}"
            raise InvalidRequest(message, param="input") from None

    def answer(self, lane: Lane, answer: Answer, payload: Payload) -> tuple[bytes, bytes]:
        """Header lines (without length) and body. Raises `EngineFailed` when there is no embedding."""
        rows = _embeddings(answer)
        return self._joined(lane, [self._item(index, row) for index, row in enumerate(rows)], payload)

    async def answer_politely(self, lane: Lane, answer: Answer, payload: Payload) -> tuple[bytes, bytes]:
        """`answer`, with the loop given to others in between."""
        items: list[bytes] = []
        for index, row in enumerate(_embeddings(answer)):
            items.append(self._item(index, row))
            if index % SLICE_ROWS == SLICE_ROWS - 1:
                await asyncio.sleep(0)  # about a millisecond: let others' answers leave
        return self._joined(lane, items, payload)

    def _item(self, index: int, row: np.ndarray[Any, Any]) -> bytes:
        encode = _base64 if self.body.encoding_format == "base64" else _floats_json
        return b'{"object":"embedding","index":%d,"embedding":%b}' % (index, encode(row))

    def _joined(self, lane: Lane, items: list[bytes], payload: Payload) -> tuple[bytes, bytes]:
        tail = b'],"model":%b,"usage":{"prompt_tokens":%d,"total_tokens":%d}}'
        tail %= (lane.model_json, payload.tokens, payload.tokens)
        return JSON_TYPE, b'{"object":"list","data":[' + b",".join(items) + tail


def _inputs(raw: memoryview) -> Inputs:
    """The four forms of `input`, told apart by how they begin."""
    if len(raw) > COUNTED_BYTES:
        _check_counts(bytes(raw))
    head = bytes(raw[:64]).lstrip(_SPACE)
    if not head.startswith(b"["):
        texts = [_decode_text(raw)]
    elif (first := head[1:].lstrip(_SPACE)[:1]) == b"[":
        return _token_lists(_decode_token_lists(raw))
    elif first.isdigit() or first == b"-":
        return _token_lists([_decode_tokens(raw)])
    else:
        texts = _decode_texts(raw)
    check_rows(len(texts), "input")
    if not all(texts):
        raise InvalidRequest("input must not hold an empty string", param="input")
    return Texts(texts)


def _check_counts(raw: bytes) -> None:
    """Raises `InvalidRequest` for lists of far too many items, before they are made."""
    strings = least_strings(raw)
    check_rows(max(1, strings), "input")
    if not strings and raw.count(b",") >= MAX_TOKEN_IDS:
        numbers = {"max_token_ids": MAX_TOKEN_IDS}
        raise InvalidRequest(
            f"a request holds at most {MAX_TOKEN_IDS} token ids", param="input", numbers=numbers
        )
    if not strings and raw.count(b"[") > MAX_ROWS + 1:
        check_rows(raw.count(b"[") - 1, "input")


def _token_lists(rows: list[list[int]]) -> TokenLists:
    check_rows(len(rows), "input")
    return TokenLists(rows)


def embedding_width(version: VersionEntry) -> int | None:
    """Dimensions of the version's embeddings, -1 when unknown, None when it makes none."""
    for spec in version.outputs:
        if spec.name == OUTPUT and len(spec.shape) == 2:
            return spec.shape[1]
    return None if version.outputs else -1


def _embeddings(answer: Answer) -> np.ndarray[Any, Any]:
    """[rows, width] in little-endian float32."""
    at = 0
    for head in answer.result.tensors:
        if head.name == OUTPUT:
            return _floats(head, answer.body[at : at + head.size_bytes])
        at += head.size_bytes
    raise EngineFailed("the model answered without an embedding")


def _floats(head: TensorHead, raw: memoryview) -> np.ndarray[Any, Any]:
    if head.datatype == "BF16":
        wide = np.frombuffer(raw, "<u2").astype("<u4") << 16
        return wide.view("<f4").reshape(head.shape)
    kinds = {"FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}
    if head.datatype not in kinds:
        raise EngineFailed("the model's embedding is not made of floats")
    floats = np.frombuffer(raw, kinds[head.datatype]).reshape(head.shape)
    return floats if head.datatype == "FP32" else floats.astype("<f4")


def _base64(row: np.ndarray[Any, Any]) -> bytes:
    return b'"%b"' % b64encode(row.data)


def _floats_json(row: np.ndarray[Any, Any]) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY)


def _param(message: str) -> str | None:
    """msgspec ends its messages with a path such as `$.model`, or names the missing field."""
    if "missing required field" in message:
        return message.split("`")[1]
    _, found, path = message.rpartition("$.")
    return path.rstrip("`").split(".")[0].split("[")[0] if found else None


# ---------------------------------------------------------------- models, errors


def model_card(model: ModelEntry) -> dict[str, Any]:
    return {"id": model.name, "object": "model", "created": int(model.created_at), "owned_by": "tidegate"}


CODES = {
    "rate_limited": "rate_limit_exceeded",
    "concurrency_exceeded": "rate_limit_exceeded",
    "queue_full": "rate_limit_exceeded",
    "queue_share_full": "rate_limit_exceeded",
    "quota_reserved": "rate_limit_exceeded",
}
"""Our code → what OpenAI's clients know instead."""


def error(error: DataPlaneError, request_id: str) -> bytes:
    """`{"error": {message, type, param, code}}`; `reason` is our own code where the API's is coarser."""
    body: dict[str, Any] = {
        "message": error.message,
        "type": error.code if error.code == "insufficient_quota" else _type(error.status),
        "param": error.param,
        "code": CODES.get(error.code, error.code),
        "request_id": request_id,
    }
    if error.code in CODES:
        body["reason"] = error.code
    if error.numbers:
        body["numbers"] = error.numbers
    return _encode({"error": body})


def _type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    if status == 403:
        return "permission_error"
    return "server_error" if status >= 500 else "invalid_request_error"
