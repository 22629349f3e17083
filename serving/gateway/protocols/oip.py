"""Open Inference Protocol v2 over HTTP: JSON and binary tensors, metadata, health.

Extensions: `binary_tensor_data`, and of the schedule extension `parameters.timeout` (µs, tightens the
deadline) and `parameters.priority` (lowers the class).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import msgspec

from serving.contract import ModelEntry, TensorSpec, VersionEntry
from serving.errors import DataPlaneError, InvalidRequest, InvalidTensor
from serving.gateway import priority, sse, tensors
from serving.gateway.inputs import Inputs, Texts, check_rows
from serving.gateway.pending import Answer, Payload
from serving.gateway.protocols import oip_plain
from serving.gateway.protocols.oip_body import (
    HEADER_LENGTH,
    InferBody,
    InputParameters,
    InputTensor,
    OutputWish,
    header_length,
    parse,
    timeout_us,
)
from serving.gateway.protocols.oip_streams import OipEvents
from serving.gateway.routing import Lane
from serving.wire import TensorHead

ENDPOINT = "infer"
MAX_DIMENSION = 2**31 - 1
SERVER = {
    "name": "tidegate",
    "version": "0.1.0",
    "extensions": ["binary_tensor_data", "schedule_policy", "generate"],
}
TEXT_INPUT = TensorSpec(name="text", datatype="BYTES", shape=(-1,))
JSON_TYPE = b"content-type: application/json\r\n"
EMPTY = b'"outputs":[]'
BINARY_TYPE = b"content-type: application/octet-stream\r\ninference-header-content-length: %d\r\n"

_NOTHING = memoryview(b"")
_encode = msgspec.json.Encoder().encode


class _Output(NamedTuple):
    """One output of an answer, as JSON or raw behind it."""

    head: TensorHead
    raw: memoryview
    is_binary: bool

    def text(self, data: bytes) -> bytes:
        head = self.head
        tail = b'"parameters":{"binary_data_size":%d}' % head.size_bytes
        return b'{"name":%b,"datatype":"%b","shape":%b,%b}' % (
            _encode(head.name),
            head.datatype.encode(),
            _encode(head.shape),
            tail if self.is_binary else b'"data":%b' % data,
        )


class InferCall:
    """One parsed `/infer` request."""

    __slots__ = ("_is_plain", "_raw", "body", "events", "sla_class", "timeout_us")
    endpoint = ENDPOINT

    def __init__(self, headers: dict[bytes, bytes], content: bytes) -> None:
        """Raises `InvalidJson` or `InvalidRequest`."""
        length = headers.get(HEADER_LENGTH)
        json_bytes = len(content) if length is None else header_length(length, len(content))
        self._raw = _NOTHING if length is None else memoryview(content)[json_bytes:]
        self.body: InferBody | None = (
            None if json_bytes == 0 and length is not None else parse(content, json_bytes)
        )
        parameters = self.body.parameters if self.body is not None else None
        self.timeout_us = timeout_us(parameters) if parameters is not None else None
        self.sla_class = priority.of_number(parameters.priority) if parameters is not None else None
        self._is_plain = (
            length is None and parameters is None and self.body is not None and not self.body.outputs
        )
        self.events = self._events() if sse.is_wanted(headers) else None

    def _events(self) -> OipEvents:
        """Raises `InvalidRequest` when binary outputs are asked for: events are text."""
        body = self.body
        if body is None:
            return OipEvents(self._part, error, "", EMPTY)
        wishes = [wish.parameters.binary_data for wish in body.outputs or () if wish.parameters is not None]
        if any(wishes) or (body.parameters is not None and body.parameters.binary_data_output):
            raise InvalidRequest("a streamed answer has no binary outputs", param="binary_data_output")
        return OipEvents(self._part, error, body.id, EMPTY)

    async def _part(self, lane: Lane, answer: Answer, payload: Payload) -> bytes:
        """One part of a streamed answer, as a response of its own."""
        outputs = [out._replace(is_binary=False) for out in self._outputs(answer)]
        datas = [await tensors.encode_json_politely(out.head.datatype, out.raw) for out in outputs]
        return self._joined(lane, outputs, datas)[1]

    def inputs(self, version: VersionEntry) -> Inputs:
        """Raises `InvalidTensor` or `InvalidRequest`."""
        specs = version.inputs or ((TEXT_INPUT,) if version.engine == "encoder" else ())
        given = self._single(specs) if self.body is None else self.body.inputs
        if self._is_plain and version.engine != "encoder":
            plain = oip_plain.payload(given, specs)
            if plain is not None:
                return plain
        _check_names(given, specs)
        by_name = {spec.name: spec for spec in specs}
        datas = self._datas(given)
        rows = 0
        for tensor in given:
            _check_spec(tensor, by_name.get(tensor.name), version)
            if rows and tensor.shape[0] != rows:
                raise InvalidTensor("inputs disagree about the batch dimension", param=tensor.name)
            rows = tensor.shape[0]
        check_rows(rows, "inputs")
        if self.body is not None and self.body.outputs:
            _check_wishes(self.body.outputs, version)
        if version.engine == "encoder":
            return Texts(_texts(given[0], datas[0]))
        return _payload(given, datas, rows)

    def answer(self, lane: Lane, answer: Answer, payload: Payload) -> tuple[bytes, bytes]:
        """Header lines (without length) and body. Raises `InvalidRequest` for an output that is not there."""
        if self._is_plain and self.body is not None and not self.body.id:
            plain = oip_plain.answer(lane, answer)
            if plain is not None:
                return JSON_TYPE, plain
        outputs = self._outputs(answer)
        datas = [b"" if out.is_binary else tensors.encode_json(out.head.datatype, out.raw) for out in outputs]
        return self._joined(lane, outputs, datas)

    async def answer_politely(self, lane: Lane, answer: Answer, payload: Payload) -> tuple[bytes, bytes]:
        """`answer`, with the loop given to others in between."""
        outputs, datas = self._outputs(answer), []
        for out in outputs:
            is_json = not out.is_binary
            datas.append(await tensors.encode_json_politely(out.head.datatype, out.raw) if is_json else b"")
        return self._joined(lane, outputs, datas)

    def _outputs(self, answer: Answer) -> list[_Output]:
        heads, bodies = answer.result.tensors, _bodies(answer)
        return [_Output(heads[index], bodies[index], is_raw) for index, is_raw in self._chosen(heads)]

    def _joined(self, lane: Lane, outputs: list[_Output], datas: list[bytes]) -> tuple[bytes, bytes]:
        texts = [out.text(data) for out, data in zip(outputs, datas, strict=True)]
        raws = [out.raw for out in outputs if out.is_binary]
        client_id = self.body.id if self.body is not None else ""
        identity = b'"id":%b,' % _encode(client_id) if client_id else b""
        text = b'{"model_name":%b,"model_version":"%b",%b"outputs":[%b]}' % (
            lane.model_json,
            lane.number_header,
            identity,
            b",".join(texts),
        )
        if not raws:
            return JSON_TYPE, text
        return BINARY_TYPE % len(text), b"".join((text, *raws))

    # ------------------------------------------------------------ parts

    def _single(self, specs: tuple[TensorSpec, ...]) -> list[InputTensor]:
        """A body of nothing but one tensor's bytes (header length 0): its shape follows from its size."""
        if len(specs) != 1:
            raise InvalidRequest("a raw binary request needs a model with exactly one input")
        spec, size = specs[0], self._raw.nbytes
        shape, item_bytes = list(spec.shape), tensors.item_bytes(spec.datatype)
        if item_bytes is None:
            shape = [1]
        elif -1 in shape[1:]:
            raise InvalidRequest(f"the shape of {spec.name!r} does not follow from a raw binary request")
        else:
            shape[0] = size // max(1, item_bytes * math.prod(shape[1:]))
        parameters = InputParameters(binary_data_size=size)
        return [InputTensor(name=spec.name, shape=shape, datatype=spec.datatype, parameters=parameters)]

    def _datas(self, given: list[InputTensor]) -> list[msgspec.Raw | memoryview]:
        """The data of each tensor, JSON text or raw bytes; the raw ones lie behind the JSON in order."""
        out: list[msgspec.Raw | memoryview] = []
        at = 0
        for tensor in given:
            size = tensor.parameters.binary_data_size if tensor.parameters is not None else None
            if size is None:
                if not tensor.data:
                    raise InvalidTensor(f"input {tensor.name!r} has no data", param=tensor.name)
                out.append(tensor.data)
                continue
            if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= self._raw.nbytes - at:
                message = f"input {tensor.name!r}: binary_data_size {size!r} does not fit the body"
                raise InvalidTensor(message, param=tensor.name)
            out.append(self._raw[at : at + size])
            at += size
        if at != self._raw.nbytes:
            raise InvalidRequest(f"{self._raw.nbytes - at} bytes of the body belong to no input")
        return out

    def _chosen(self, heads: tuple[TensorHead, ...]) -> list[tuple[int, bool]]:
        """Which outputs go out, in which order, and whether raw."""
        if self.body is None:
            return [(index, True) for index in range(len(heads))]
        parameters = self.body.parameters
        is_binary = parameters is not None and bool(parameters.binary_data_output)
        wishes = self.body.outputs
        if not wishes:
            return [(index, is_binary) for index in range(len(heads))]
        places = {head.name: index for index, head in enumerate(heads)}
        return [(_place(places, wish), _is_binary(wish, is_binary)) for wish in wishes]


def _check_wishes(wishes: list[OutputWish], version: VersionEntry) -> None:
    """Each output once: a short request must not ask for any number of copies of its answer."""
    if len({wish.name for wish in wishes}) != len(wishes):
        raise InvalidRequest("outputs must hold each name once", param="outputs")
    if version.outputs:
        places = {spec.name: index for index, spec in enumerate(version.outputs)}
        for wish in wishes:
            _place(places, wish)


def _is_binary(wish: OutputWish, default: bool) -> bool:
    is_binary = wish.parameters.binary_data if wish.parameters is not None else None
    return default if is_binary is None else bool(is_binary)


def _place(places: dict[str, int], wish: OutputWish) -> int:
    if wish.parameters is not None and wish.parameters.classification:
        raise InvalidRequest("the classification extension is not supported", param="outputs")
    place = places.get(wish.name)
    if place is None:
        raise InvalidRequest(
            f"the model has no output {wish.name!r}; it has {sorted(places)}", param="outputs"
        )
    return place


def _check_names(given: list[InputTensor], specs: tuple[TensorSpec, ...]) -> None:
    if len(given) == len(specs) == 1 and given[0].name == specs[0].name:
        return
    names = [tensor.name for tensor in given]
    if not names or len(set(names)) != len(names):
        raise InvalidRequest("inputs must hold at least one tensor, each name once", param="inputs")
    if not specs:
        return
    expected = [spec.name for spec in specs]
    if set(names) != set(expected):
        raise InvalidTensor(f"inputs are {sorted(names)}, the model takes {sorted(expected)}", param="inputs")


def _check_spec(tensor: InputTensor, spec: TensorSpec | None, version: VersionEntry) -> None:
    name, shape = tensor.name, tensor.shape
    if not 1 <= len(shape) <= tensors.MAX_RANK or min(shape) < 0 or max(shape) > MAX_DIMENSION:
        raise InvalidTensor(f"input {name!r}: {shape} is not a shape with a batch dimension", param=name)
    if spec is None:
        return
    if tensor.datatype != spec.datatype:
        message = f"input {name!r} is {tensor.datatype}, the model takes {spec.datatype}"
        raise InvalidTensor(message, param=name)
    if version.engine == "encoder" and len(shape) == 2 and shape[1] == 1:
        return  # a column of texts is as good as a list of them
    if not _is_fit(shape, spec.shape):
        message = f"input {name!r} has shape {shape}, the model takes {list(spec.shape)}"
        raise InvalidTensor(message, param=name)


def _is_fit(shape: list[int], wanted: tuple[int, ...]) -> bool:
    if len(shape) != len(wanted):
        return False
    for size, one in zip(shape, wanted, strict=True):  # noqa: SIM110 - a generator costs three times as much
        if one not in (-1, size):
            return False
    return True


def _texts(tensor: InputTensor, data: msgspec.Raw | memoryview) -> list[str]:
    if isinstance(data, memoryview):
        try:
            return [item.decode() for item in tensors.split_bytes(tensor.name, data, tensor.shape[0])]
        except UnicodeDecodeError:
            raise InvalidTensor(
                f"input {tensor.name!r} holds text that is not UTF-8", param=tensor.name
            ) from None
    return tensors.decode_json_bytes(tensor.name, tensor.shape, memoryview(data))


def _payload(given: list[InputTensor], datas: list[msgspec.Raw | memoryview], rows: int) -> Payload:
    heads: list[TensorHead] = []
    parts: list[bytes | memoryview] = []
    for tensor, data in zip(given, datas, strict=True):
        raw = _raw(tensor, data)
        heads.append(TensorHead(tensor.name, tensor.datatype, tuple(tensor.shape), len(raw)))
        parts.append(raw)
    return Payload(rows, rows, (), tuple(heads), parts)


def _raw(tensor: InputTensor, data: msgspec.Raw | memoryview) -> bytes | memoryview:
    name, datatype, shape = tensor.name, tensor.datatype, tensor.shape
    if isinstance(data, memoryview):
        tensors.check_raw(name, datatype, shape, data)
        if datatype == tensors.BYTES:
            tensors.split_bytes(name, data, tensors.elements(shape))
        return data
    if datatype == tensors.BYTES:
        texts = tensors.decode_json_bytes(name, shape, memoryview(data))
        return tensors.join_bytes([text.encode("utf-8", "surrogatepass") for text in texts])
    return tensors.decode_json(name, datatype, shape, memoryview(data))


def _bodies(answer: Answer) -> list[memoryview]:
    out: list[memoryview] = []
    at = 0
    for head in answer.result.tensors:
        out.append(answer.body[at : at + head.size_bytes])
        at += head.size_bytes
    return out


# ---------------------------------------------------------------- metadata, errors


def model_metadata(model: ModelEntry, version: VersionEntry) -> dict[str, Any]:
    inputs = version.inputs or ((TEXT_INPUT,) if version.engine == "encoder" else ())
    return {
        "name": model.name,
        "versions": sorted(model.versions, key=lambda number: (len(number), number)),
        "platform": f"tidegate_{version.engine}",
        "inputs": [_tensor_metadata(spec) for spec in inputs],
        "outputs": [_tensor_metadata(spec) for spec in version.outputs],
    }


def _tensor_metadata(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}


def error(error: DataPlaneError, request_id: str) -> bytes:
    """`{"error": s}` with the machine's part beside it."""
    body: dict[str, Any] = {"error": error.message, "code": error.code, "request_id": request_id}
    if error.param:
        body["param"] = error.param
    if error.numbers:
        body["numbers"] = error.numbers
    return _encode(body)
