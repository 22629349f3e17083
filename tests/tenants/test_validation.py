"""Rows are checked before they are saved: what is wrong is said at once, and a good row costs little."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tenants.errors import Invalid
from tenants.models import Tenant
from tenants.scoping import all_tenants
from tenants.validation import save_valid


def tenant(**values: object) -> Tenant:
    return Tenant(**{"slug": "acme-chat", "name": "Acme chat"} | values)


def test_wrong_fields_and_broken_constraints_are_told_together(db: None) -> None:
    with pytest.raises(Invalid) as caught:
        save_valid(tenant(name="", burst=5))
    assert set(caught.value.errors) == {"name", "burst"}


def test_a_constraint_says_its_own_sentence_and_the_transaction_goes_on(db: None) -> None:
    with pytest.raises(Invalid) as caught:
        save_valid(tenant(burst=5))
    assert caught.value.errors == {"burst": "A burst only means something beside a request rate."}
    save_valid(tenant(burst=5, requests_per_s=1.0))
    with all_tenants("reading back"):
        assert Tenant.objects.get(slug="acme-chat").burst == 5


def test_every_constraint_a_row_breaks_is_told(db: None) -> None:
    with pytest.raises(Invalid) as caught:
        save_valid(tenant(burst=5, is_active=True, suspended_reason="unpaid"))
    assert set(caught.value.errors) == {"burst", ""}


def test_a_good_row_is_not_held_against_each_check_constraint_beforehand(db: None) -> None:
    with CaptureQueriesContext(
        connection,
    ) as queries:
        save_valid(tenant())
    assert not [query for query in queries.captured_queries if "_check" in query["sql"]]
