"""What may go wrong between an API client and us, beside what may go wrong with the thing it asks for."""

from __future__ import annotations

from tenants.errors import Conflict, DomainError, Invalid


class PreconditionFailed(DomainError):
    """`If-Match` names another state of the object than the present one."""

    code = "precondition_failed"


class InProgress(Conflict):
    """The first request with this `Idempotency-Key` is still being answered."""

    code = "request_in_flight"


class Mismatch(Invalid):
    """The `Idempotency-Key` was used for another request."""

    code = "idempotency_key_reused"
