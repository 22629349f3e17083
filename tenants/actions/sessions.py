"""Sessions end: one's own, or another's by an operator. What they streamed stops within a second."""

from __future__ import annotations

from django.contrib.sessions.models import Session
from django.db import transaction

from tenants.access import require
from tenants.actors import Actor
from tenants.audit import Target, record
from tenants.changes import announce
from tenants.errors import NotFound
from tenants.people import UserSession
from tenants.roles import Right


@transaction.atomic
def end_session(*, by: Actor, session: UserSession) -> None:
    """Raises `NotAllowed` for another person's session without the right to manage people."""
    if by.type != "user" or by.id != str(session.user_id):
        require(by, Right.MANAGE_USERS)
    if not _end(session.pk, session.session_key):
        raise NotFound("session")
    target = Target("session", session.pk, session.user.get_username())
    before = {"ip": session.ip, "user_agent": session.user_agent}
    record(by=by, action="user.session_ended", target=target, before=before)
    announce("user", str(session.user_id))


@transaction.atomic
def end_sessions(*, by: Actor, user_id: int, keep_key: str = "") -> int:
    """Every session of a person except the one with Django's key `keep_key`; returns how many ended."""
    if by.type != "user" or by.id != str(user_id):
        require(by, Right.MANAGE_USERS)
    ended = [
        session
        for session in UserSession.objects.filter(user_id=user_id).exclude(session_key=keep_key)
        if _end(session.pk, session.session_key)
    ]
    if ended:
        target = Target("user", str(user_id), ended[0].user.get_username())
        record(by=by, action="user.sessions_ended", target=target, after={"ended": len(ended)})
        announce("user", str(user_id))
    return len(ended)


def _end(pk: str, session_key: str) -> bool:
    """Whether it still let somebody in; of two that end it at once, one does."""
    UserSession.objects.filter(pk=pk).delete()
    deleted, _ = Session.objects.filter(session_key=session_key).delete()
    return bool(deleted)
