"""Sessions: where people are signed in, and how each ends. A key has none."""

from __future__ import annotations

from typing import ClassVar, cast

from django.db.models import BooleanField, Case, QuerySet, Value, When
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.accounts import account_of
from console.api.fields import Document, Moment
from console.api.schema import done, gone, listed
from console.api.views import ApiView
from console.browsers import name_of
from console.sessions import sessions_of
from tenants.actions.sessions import end_session, end_sessions
from tenants.errors import NotAllowed, NotFound
from tenants.models import User
from tenants.people import UserSession
from tenants.roles import Right


class SessionDocument(Document):
    moving: ClassVar[tuple[str, ...]] = ("last_seen_at", "ip", "user_agent", "browser", "is_this_one")

    id = serializers.CharField()
    account = serializers.CharField(source="user_id")
    browser = serializers.SerializerMethodField(help_text="In short, such as `Firefox · Linux`.")
    user_agent = serializers.CharField()
    ip = serializers.CharField(allow_null=True)
    is_this_one = serializers.BooleanField()
    created_at = Moment()
    last_seen_at = Moment(help_text="Exact to a minute.")

    def get_browser(self, row: UserSession) -> str:
        return name_of(row.user_agent)


class EndedDocument(Document):
    ended = serializers.IntegerField(help_text="How many sessions ended.")


class SessionView(ApiView):
    """What asks a person who is signed in."""

    def own_key(self, request: Request) -> str:
        return request._request.session.session_key or ""

    def person(self, request: Request) -> User:
        """Raises `NotAllowed` for a key."""
        if self.actor.type != "user":
            raise NotAllowed("Sessions are people's: a key has none.")
        return cast(User, request.user)

    def marked(self, rows: QuerySet[UserSession], own_key: str) -> QuerySet[UserSession]:
        this = When(session_key=own_key, then=Value(True))
        return rows.annotate(is_this_one=Case(this, default=Value(False), output_field=BooleanField()))


class Sessions(SessionView):
    """`/sessions`"""

    @listed("list_sessions", SessionDocument)
    def get(self, request: Request) -> Response:
        """Where you are signed in, the newest first."""
        rows = sessions_of(self.person(request))
        return self.rows(self.marked(rows, self.own_key(request)), SessionDocument)


class OneSession(SessionView):
    """`/sessions/{id}`"""

    @gone("end_session")
    def delete(self, request: Request, session_id: str) -> Response:
        """End one session: your own, or anybody's for who manages people. What it streamed stops at once."""
        person = self.person(request)

        def fetch() -> UserSession:
            rows = UserSession.objects.filter(pk=session_id).select_related("user")
            row = (rows if self.actor.has(Right.MANAGE_USERS) else rows.filter(user=person)).first()
            if row is None:
                raise NotFound("session")
            return self.marked(rows, self.own_key(request)).get()

        return self.remove(fetch, lambda row: end_session(by=self.actor, session=row), SessionDocument)


class EndOtherSessions(SessionView):
    """`/sessions/end-others`"""

    @done("end_other_sessions", EndedDocument)
    def post(self, request: Request) -> Response:
        """End every session of yours but the one that asks."""
        person = self.person(request)
        ended = end_sessions(by=self.actor, user_id=person.pk, keep_key=self.own_key(request))
        return Response({"ended": ended})


class AccountSessions(SessionView):
    """`/accounts/{id}/sessions`"""

    @listed("list_account_sessions", SessionDocument)
    def get(self, request: Request, account_id: str) -> Response:
        """Where somebody is signed in, the newest first."""
        rows = sessions_of(account_of(self.actor, account_id))
        return self.rows(self.marked(rows, self.own_key(request)), SessionDocument)


class EndAccountSessions(SessionView):
    """`/accounts/{id}/end-sessions`"""

    @done("end_account_sessions", EndedDocument)
    def post(self, request: Request, account_id: str) -> Response:
        """Sign somebody out everywhere."""
        person = account_of(self.actor, account_id, Right.MANAGE_USERS)
        return Response({"ended": end_sessions(by=self.actor, user_id=person.pk)})
