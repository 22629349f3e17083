"""The data plane's error tree.

    DataPlaneError                     status  code                    retryable
    ├── InvalidRequest                    400  invalid_request
    │   ├── InvalidJson                   400  invalid_json
    │   ├── InvalidTensor                 400  invalid_tensor
    │   └── InputTooLong                  400  input_too_long
    ├── InvalidApiKey                     401  invalid_api_key
    ├── PermissionRefused                 403  permission_denied
    ├── TenantSuspended                   403  tenant_suspended
    ├── ModelNotFound                     404  model_not_found
    ├── RouteNotFound                     404  not_found
    ├── MethodNotAllowed                  405  method_not_allowed
    ├── RequestTimeout                    408  request_timeout         yes
    ├── ClientTooSlow                     408  client_too_slow
    ├── RequestInFlight                   409  request_in_flight       yes
    ├── AnswerNotKept                     409  answer_not_kept
    ├── BodyTooLarge                      413  body_too_large
    ├── UnsupportedMediaType              415  unsupported_media_type
    ├── IdempotencyKeyReused              422  idempotency_key_reused
    ├── RateLimited                       429  rate_limited            yes
    ├── ConcurrencyExceeded               429  concurrency_exceeded    yes
    ├── QueueFull                         429  queue_full              yes
    ├── QueueShareFull                    429  queue_share_full        yes
    ├── QuotaExhausted                    429  insufficient_quota
    ├── QuotaReserved                     429  quota_reserved          yes
    ├── ClientClosedRequest               499  cancelled
    ├── EngineFailed                      500  engine_failed
    ├── PoisonedRequest                   500  poisoned_request
    ├── ModelNotReady                     503  model_not_ready         yes
    ├── DeadlineUnattainable              503  deadline_unattainable   yes
    ├── ReplicaLost                       503  replica_lost            yes
    ├── OutOfMemory                       503  out_of_memory           yes
    ├── IdempotencyUnavailable            503  idempotency_unavailable yes
    ├── QuotaUnavailable                  503  quota_unavailable       yes
    ├── CircuitOpen                       503  circuit_open            yes
    ├── Overloaded                        503  overloaded              yes
    └── Draining                          503  draining                yes

A protocol module turns these into its own shape; nothing else writes an error body.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Self

from tenants.keys import masked

MAX_MESSAGE_CHARS = 1000
MAX_PARAM_CHARS = 200


class Misuse(NamedTuple):
    """Which key was used outside its rights, and how: kept for the audit trail, never told to the client."""

    reason: str
    """`credential`, `scope`, `network` or `model`."""
    key_id: str
    tenant_id: str = ""
    """Empty while nobody has looked the key up."""
    detail: str = ""
    """Of a model or a scope: its name."""
    digest: bytes = b""
    """Of a token that opens nothing: whether it ever did is for the control plane to say."""


class DataPlaneError(Exception):
    """Base. `message` is safe to show a client; `numbers` are the facts behind a refusal.

    Messages and names quote what a client sent, so both are cut and keys in them masked: nobody
    gets, or logs, megabytes or secrets back.
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    is_retryable: ClassVar[bool] = False
    misuse: Misuse | None = None
    """Set where the refusal is for what a key may not do."""

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
        numbers: dict[str, Any] | None = None,
    ) -> None:
        message = masked(message)
        if len(message) > MAX_MESSAGE_CHARS:
            message = message[:MAX_MESSAGE_CHARS] + "…"
        super().__init__(message)
        self.message = message
        self.param = masked(param)[:MAX_PARAM_CHARS] if param else param
        self.retry_after_s = retry_after_s
        self.numbers = numbers or {}

    def of_misuse(self, misuse: Misuse) -> Self:
        self.misuse = misuse
        return self


class InvalidRequest(DataPlaneError):
    status, code = 400, "invalid_request"


class InvalidJson(InvalidRequest):
    code = "invalid_json"


class InvalidTensor(InvalidRequest):
    code = "invalid_tensor"


class InputTooLong(InvalidRequest):
    code = "input_too_long"


class InvalidApiKey(DataPlaneError):
    status, code = 401, "invalid_api_key"


class PermissionRefused(DataPlaneError):
    status, code = 403, "permission_denied"


class TenantSuspended(DataPlaneError):
    status, code = 403, "tenant_suspended"


class ModelNotFound(DataPlaneError):
    status, code = 404, "model_not_found"


class RouteNotFound(DataPlaneError):
    status, code = 404, "not_found"


class MethodNotAllowed(DataPlaneError):
    status, code = 405, "method_not_allowed"


class RequestTimeout(DataPlaneError):
    status, code, is_retryable = 408, "request_timeout", True


class ClientTooSlow(DataPlaneError):
    """Only streams meet it, after their first chunk."""

    status, code = 408, "client_too_slow"


class RequestInFlight(DataPlaneError):
    status, code, is_retryable = 409, "request_in_flight", True


class AnswerNotKept(DataPlaneError):
    status, code = 409, "answer_not_kept"


class BodyTooLarge(DataPlaneError):
    status, code = 413, "body_too_large"


class UnsupportedMediaType(DataPlaneError):
    status, code = 415, "unsupported_media_type"


class IdempotencyKeyReused(DataPlaneError):
    status, code = 422, "idempotency_key_reused"


class RateLimited(DataPlaneError):
    status, code, is_retryable = 429, "rate_limited", True


class ConcurrencyExceeded(DataPlaneError):
    status, code, is_retryable = 429, "concurrency_exceeded", True


class QueueFull(DataPlaneError):
    status, code, is_retryable = 429, "queue_full", True


class QueueShareFull(DataPlaneError):
    """As many wait as the client's own quota lets: its limit, not a promise that was broken."""

    status, code, is_retryable = 429, "queue_share_full", True


class QuotaExhausted(DataPlaneError):
    """A budget has nothing left: trying again is of no use before its window ends."""

    status, code = 429, "insufficient_quota"


class QuotaReserved(DataPlaneError):
    """What a budget has left is reserved by requests that run: what they do not take comes back."""

    status, code, is_retryable = 429, "quota_reserved", True


class ClientClosedRequest(DataPlaneError):
    status, code = 499, "cancelled"


class EngineFailed(DataPlaneError):
    status, code = 500, "engine_failed"


class PoisonedRequest(DataPlaneError):
    status, code = 500, "poisoned_request"


class ModelNotReady(DataPlaneError):
    status, code, is_retryable = 503, "model_not_ready", True


class DeadlineUnattainable(DataPlaneError):
    status, code, is_retryable = 503, "deadline_unattainable", True


class ReplicaLost(DataPlaneError):
    status, code, is_retryable = 503, "replica_lost", True


class OutOfMemory(DataPlaneError):
    status, code, is_retryable = 503, "out_of_memory", True


class IdempotencyUnavailable(DataPlaneError):
    status, code, is_retryable = 503, "idempotency_unavailable", True


class QuotaUnavailable(DataPlaneError):
    status, code, is_retryable = 503, "quota_unavailable", True


class CircuitOpen(DataPlaneError):
    status, code, is_retryable = 503, "circuit_open", True


class Overloaded(DataPlaneError):
    status, code, is_retryable = 503, "overloaded", True


class Draining(DataPlaneError):
    status, code, is_retryable = 503, "draining", True


def _tree(root: type[DataPlaneError]) -> list[type[DataPlaneError]]:
    return [root] + [kind for child in root.__subclasses__() for kind in _tree(child)]


BY_CODE: dict[str, type[DataPlaneError]] = {kind.code: kind for kind in _tree(DataPlaneError)}


def from_code(code: str, message: str, **facts: Any) -> DataPlaneError:
    """Rebuild an error that crossed the wire; an unknown code becomes the base error."""
    return BY_CODE.get(code, DataPlaneError)(message, **facts)
