"""Where people are signed in, and how that ends."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from console.browsers import name_of
from console.sessions import MAX_SESSIONS, SEEN_SESSION_KEY, drop_ended, sessions_of
from tenants.actions.users import create_user, set_password
from tenants.models import AuditEvent, User
from tenants.people import UserSession
from tenants.scoping import all_tenants
from tests.tenants.conftest import SYSTEM, last_event

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery staple"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"


@pytest.fixture
def ada(db: None) -> User:
    cache.clear()
    return create_user(by=SYSTEM, username="ada", email="ada@example.org", password=PASSWORD)


def sign_in(ip: str = "203.0.113.9") -> Client:
    client = Client(REMOTE_ADDR=ip, headers={"user-agent": FIREFOX})
    client.post("/accounts/login/", {"login": "ada", "password": PASSWORD})
    assert client.get("/sessions/").status_code == 200
    return client


def is_signed_in(client: Client) -> bool:
    return client.get("/sessions/").status_code == 200


def test_a_person_sees_every_browser_they_are_signed_in_with(ada: User) -> None:
    sign_in("198.51.100.7")
    text = sign_in("203.0.113.9").get("/sessions/").content.decode()
    assert "198.51.100.7" in text and "203.0.113.9" in text
    assert "Firefox · Linux" in text and text.count("this one") == 1


def test_a_session_that_is_ended_lets_nobody_in(ada: User) -> None:
    stolen, own = sign_in(), sign_in()
    row = ada.sessions.get(session_key=stolen.session.session_key)
    own.post(f"/sessions/{row.pk}/end")
    assert (is_signed_in(stolen), is_signed_in(own)) == (False, True)
    assert (last_event().action, last_event().actor_name) == ("user.session_ended", "ada")


def test_all_others_end_with_one_click(ada: User) -> None:
    others, own = [sign_in(), sign_in()], sign_in()
    own.post("/sessions/end-others")
    assert [is_signed_in(client) for client in [*others, own]] == [False, False, True]
    assert last_event().after == {"ended": 2}


def test_a_changed_password_ends_every_other_session(ada: User) -> None:
    other, own = sign_in(), sign_in()
    fresh = "another horse, another battery"
    values = {"oldpassword": PASSWORD, "password1": fresh, "password2": fresh}
    own.post("/accounts/password/change/", values)
    assert (is_signed_in(other), is_signed_in(own)) == (False, True)
    assert sessions_of(ada).count() == 1


def test_a_password_set_by_an_operator_ends_every_session(ada: User) -> None:
    client = sign_in()
    set_password(by=SYSTEM, user=ada, password="another horse, another battery")
    assert not is_signed_in(client)
    assert not ada.sessions.exists()


def test_signing_out_leaves_no_session_in_the_list(ada: User) -> None:
    client = sign_in()
    client.post("/accounts/logout/")
    assert not ada.sessions.exists()


def test_another_persons_session_looks_like_none(ada: User) -> None:
    sign_in()
    stranger = create_user(by=SYSTEM, username="eve")
    client = Client()
    client.force_login(stranger)
    assert client.post(f"/sessions/{ada.sessions.get().pk}/end").status_code == 404
    assert ada.sessions.count() == 1


def test_last_use_is_written_at_most_once_a_minute(ada: User) -> None:
    client = sign_in()
    seen = ada.sessions.get().last_seen_at
    client.get("/sessions/")
    assert ada.sessions.get().last_seen_at == seen
    session = client.session
    session[SEEN_SESSION_KEY] -= 61
    session.save()
    client.get("/sessions/", REMOTE_ADDR="198.51.100.8")
    row = ada.sessions.get()
    assert row.last_seen_at > seen and row.ip == "198.51.100.8"


def test_one_person_has_a_bounded_number_of_sessions(ada: User) -> None:
    first = sign_in()
    row = ada.sessions.get()
    UserSession.objects.filter(pk=row.pk).update(last_seen_at=timezone.now() - timedelta(days=1))
    rows = [UserSession(user=ada, session_key=f"k{n}") for n in range(MAX_SESSIONS)]
    UserSession.objects.bulk_create(rows)
    sign_in()
    assert ada.sessions.count() == MAX_SESSIONS
    assert not is_signed_in(first)


def test_sessions_that_expired_are_dropped_from_the_list(ada: User) -> None:
    sign_in()
    UserSession.objects.create(user=ada, session_key="long-gone")
    assert sessions_of(ada).count() == 1
    assert drop_ended() == 1


def test_no_page_and_no_audit_row_shows_a_session_key(ada: User) -> None:
    client = sign_in()
    other = sign_in()
    key = other.session.session_key
    assert key not in client.get("/sessions/").content.decode()
    client.post(f"/sessions/{ada.sessions.get(session_key=key).pk}/end")
    with all_tenants("a test"):
        assert key not in str(list(AuditEvent.objects.values()))


@pytest.mark.parametrize(
    ("says", "shown"),
    [
        (FIREFOX, "Firefox · Linux"),
        ("Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537 Chrome/140.0 Safari/537 Edg/140.0", "Edge · Windows"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 19 like Mac OS X) Version/19 Safari/604.1", "Safari · iPhone"),
        ("curl/8.5.0", "curl"),
        ("somebody's own program " + "x" * 100, "somebody's own program xxxxxxxxxxxxxxxxx"),
        ("", ""),
    ],
)
def test_browsers_are_called_what_people_call_them(says: str, shown: str) -> None:
    assert name_of(says) == shown
