"""Open Inference Protocol, generate extension: one text in, one text out, whole or in parts.

`{"id"?, "text_input": s, "parameters"?}` → `{"model_name", "model_version", "id"?, "text_output"}`. For versions
whose only input is a BYTES tensor and which answer with one; of the parameters those of the schedule extension.
"""

from __future__ import annotations

import math

import msgspec

from serving.contract import SlaClass, VersionEntry
from serving.errors import EngineFailed, InvalidRequest
from serving.gateway import priority, tensors
from serving.gateway.inputs import Inputs
from serving.gateway.pending import Answer, Payload
from serving.gateway.protocols import oip
from serving.gateway.protocols.oip_body import RequestParameters, decoded, timeout_us
from serving.gateway.protocols.oip_streams import OipEvents, identity
from serving.gateway.routing import Lane
from serving.wire import TensorHead

_encode = msgspec.json.Encoder().encode


class GenerateBody(msgspec.Struct):
    text_input: str
    id: str = ""
    parameters: RequestParameters | None = None


_decode = msgspec.json.Decoder(GenerateBody).decode


class GenerateCall:
    """One parsed `/generate` or `/generate_stream` request."""

    __slots__ = ("body", "events", "sla_class", "timeout_us")
    endpoint = oip.ENDPOINT

    def __init__(self, content: bytes, *, is_streamed: bool) -> None:
        """Raises `InvalidJson` or `InvalidRequest`."""
        self.body = decoded(_decode, content)
        parameters = self.body.parameters
        self.timeout_us: int | None = timeout_us(parameters) if parameters is not None else None
        self.sla_class: SlaClass | None = (
            priority.of_number(parameters.priority) if parameters is not None else None
        )
        self.events = (
            OipEvents(self._text, oip.error, self.body.id, b'"text_output":""') if is_streamed else None
        )

    def inputs(self, version: VersionEntry) -> Inputs:
        """Raises `InvalidRequest` for a version that does not turn text into text."""
        takes, gives = version.inputs, version.outputs
        if [spec.datatype for spec in (*takes, *gives)] != [tensors.BYTES, tensors.BYTES]:
            raise InvalidRequest(f"the model {version.model!r} does not answer text with text", param="model")
        raw = tensors.join_bytes([self.body.text_input.encode("utf-8", "surrogatepass")])
        shape = (1,) * len(takes[0].shape)
        return Payload(1, 1, (), (TensorHead(takes[0].name, tensors.BYTES, shape, len(raw)),), [raw])

    def answer(self, lane: Lane, answer: Answer, payload: Payload) -> tuple[bytes, bytes]:
        """Header lines (without length) and body. Raises `EngineFailed` when there is no text."""
        head = identity(lane, self.body.id)
        return oip.JSON_TYPE, b'{%b,"text_output":%b}' % (head, _encode(_text_of(answer)))

    async def answer_politely(self, lane: Lane, answer: Answer, payload: Payload) -> tuple[bytes, bytes]:
        """`answer`: a text is encoded at one go, however long."""
        return self.answer(lane, answer, payload)

    async def _text(self, lane: Lane, answer: Answer, payload: Payload) -> bytes:
        return self.answer(lane, answer, payload)[1]


def _text_of(answer: Answer) -> str:
    """The answer's one string. Raises `EngineFailed`."""
    heads, raw = answer.result.tensors, answer.body
    if len(heads) != 1 or heads[0].datatype != tensors.BYTES or math.prod(heads[0].shape) != 1:
        raise EngineFailed("the model's answer is not one text")
    return bytes(raw[4:]).decode(errors="replace")
