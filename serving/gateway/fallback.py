"""Degradation: what a version cannot answer now is answered by the fallback it names, once, and says so.

A request whose version has a fallback may be tried three times at most: on its own version; on the
fallback; and, where its profile prefers a late answer to none and the fallback failed as well, on its own
version in a lower class as if there were no fallback. The fallback's own fallback is never used. The promise
stays the one that was asked for: the fallback runs under the profile of the model that was named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import structlog

from serving.errors import ClientClosedRequest, DataPlaneError
from serving.gateway.inputs import Inputs
from serving.gateway.pending import Answer, OnOutcome, Payload
from serving.gateway.visit import SMALL_BODY_BYTES, Visit

if TYPE_CHECKING:
    from serving.gateway.inference import Call, Inference
    from serving.gateway.routing import Lane

log = structlog.get_logger("tidegate.gateway.fallback")

REASONS = {
    "model_not_ready": "not_ready",
    "draining": "not_ready",
    "circuit_open": "circuit_open",
    "replica_lost": "replica_lost",
}
"""Error code → reason, whatever the profile's late policy."""
LATE_REASONS = {"deadline_unattainable": "late", "overloaded": "overloaded"}
"""The same under the late policy `degrade`."""


class Fallback(NamedTuple):
    """Why something else answered, and instead of what."""

    reason: str
    lane: Lane

    @property
    def text(self) -> str:
        version = self.lane.version
        return f"{self.reason}; from={version.model}/{version.number}"

    def header_line(self) -> bytes:
        return b"x-tidegate-fallback: %b\r\n" % self.text.encode()


def reason_of(error: DataPlaneError, lane: Lane) -> str | None:
    """Why the lane's fallback may answer instead; None when the error is the answer."""
    reason = REASONS.get(error.code)
    if reason is None and lane.profile.late_policy == "degrade":
        reason = LATE_REASONS.get(error.code)
    return reason


class Attempts:
    """The tries of one request whose version names a fallback. `on_outcome` hears of the last one only."""

    __slots__ = (
        "_call",
        "_error",
        "_lane",
        "_on_outcome",
        "_payload",
        "_reason",
        "_steps",
        "_substitute",
        "_visit",
    )

    def __init__(
        self, steps: Inference, visit: Visit, lane: Lane, substitute: Lane, call: Call, on_outcome: OnOutcome
    ) -> None:
        self._steps = steps
        self._visit = visit
        self._lane = lane
        self._substitute = substitute
        self._call = call
        self._on_outcome = on_outcome
        self._payload: Payload | None = None
        self._reason = ""
        self._error: DataPlaneError | None = None

    def begin(self, payload: Payload) -> None:
        """Raises what the first try raises, unless the fallback may answer."""
        self._payload = payload
        is_degrading = self._lane.profile.late_policy == "degrade"
        try:
            self._submit(self._lane, payload, self._first_known, has_substitute=is_degrading)
        except DataPlaneError as error:
            if not self._turn(error):
                raise

    # ------------------------------------------------------------ the first try

    def _first_known(self, known: Answer | DataPlaneError) -> None:
        if not (isinstance(known, DataPlaneError) and self._turn(known)):
            self._on_outcome(known)

    def _turn(self, error: DataPlaneError) -> bool:
        """Try the fallback, if this error is a reason to."""
        reason = reason_of(error, self._lane)
        if reason is None or self._payload is None or self._visit.has_begun:
            return False
        self._reason, self._error = reason, error
        if sum(map(len, self._payload.parts)) > SMALL_BODY_BYTES:
            self._steps.spawn(self._second_later(None))  # parsing and tokenising it again take a while
            return True
        try:
            inputs = self._call.inputs(self._substitute.version)
            payload = self._steps.payload_now(self._substitute, inputs)
        except DataPlaneError:  # it takes other inputs
            self._last()
            return True
        if payload is None:
            self._steps.spawn(self._second_later(inputs))
        else:
            self._second(payload)
        return True

    # ------------------------------------------------------------ the fallback

    async def _second_later(self, inputs: Inputs | None) -> None:
        steps, substitute = self._steps, self._substitute
        try:
            if inputs is None:
                inputs = await steps.turns.take(
                    substitute.tenant_id, lambda: self._call.inputs(substitute.version)
                )
            payload = await steps.payload(substitute, inputs)
        except DataPlaneError:
            self._last()
        except Exception:  # the top of this part of a request: it must end, whatever happens
            log.exception("fallback.crashed", request_id=self._visit.request_id)
            self._last()
        else:
            self._second(payload)

    def _second(self, payload: Payload) -> None:
        if self._visit.is_abandoned:
            self._on_outcome(ClientClosedRequest("the client is gone"))
            return
        self._steps.move(self._visit, self._substitute)
        self._steps.quotas.top_up(
            self._visit.reservation,
            self._substitute,
            payload,
            lambda refusal: self._afforded(payload, refusal),
        )

    def _afforded(self, payload: Payload, refusal: DataPlaneError | None) -> None:
        """The fallback may cost more than was reserved: it answers where its budgets allow that as well."""
        if self._visit.is_abandoned:
            self._on_outcome(ClientClosedRequest("the client is gone"))
            return
        if refusal is not None:
            self._error = refusal
            self._last()
            return
        try:
            self._submit(self._substitute, payload, self._second_known)
        except DataPlaneError:
            self._last()

    def _second_known(self, known: Answer | DataPlaneError) -> None:
        if isinstance(known, Answer):
            self._visit.fallback = Fallback(self._reason, self._lane)
            self._on_outcome(known)
        elif isinstance(known, ClientClosedRequest) or self._visit.has_begun:
            self._on_outcome(known)
        else:
            self._last()

    # ------------------------------------------------------------ neither could

    def _last(self) -> None:
        """What the version that was asked for has to say: a late answer where one is wanted, or its refusal."""
        assert self._error is not None and self._payload is not None
        self._steps.move(self._visit, self._lane)
        if self._reason != "late":
            self._on_outcome(self._error)
            return
        self._steps.quotas.top_up(self._visit.reservation, self._lane, self._payload, self._late)

    def _late(self, refusal: DataPlaneError | None) -> None:
        assert self._error is not None and self._payload is not None
        if refusal is not None or self._visit.is_abandoned:
            self._on_outcome(refusal or ClientClosedRequest("the client is gone"))
            return
        try:
            self._submit(self._lane, self._payload, self._on_outcome)
        except DataPlaneError:
            self._on_outcome(self._error)

    def _submit(
        self, lane: Lane, payload: Payload, on_outcome: OnOutcome, *, has_substitute: bool = False
    ) -> None:
        self._steps.submit(self._visit, lane, self._call, payload, on_outcome, has_substitute=has_substitute)
