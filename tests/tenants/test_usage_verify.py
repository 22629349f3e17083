"""`manage.py usage verify` finds a sum that somebody bent, and nothing where nobody did."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.utils import timezone

from tenants.actions.tenants import update_tenant
from tenants.models import UsageDay, UsageHour, UsagePlatformDay, UsageWeek
from tenants.retention import prune_usage
from tenants.rollups import recut
from tenants.scoping import all_tenants
from tenants.usage import record_usage
from tests.tenants.conftest import SYSTEM, Cast
from tests.tenants.test_rollups import row

NOW = timezone.now()


def verified() -> str:
    out = StringIO()
    call_command("usage", "verify", stdout=out)
    return out.getvalue()


@pytest.fixture
def used(team: Cast) -> Cast:
    for days in range(6):
        moment = (NOW - timedelta(days=days)).replace(second=0, microsecond=0)
        record_usage("gateway", [row(team, moment), row(team, moment, tenant_id=team.other.pk)])
    return team


@pytest.mark.parametrize("place", ["UTC", "Asia/Kolkata", "America/Havana"])
def test_honest_sums_agree(used: Cast, place: str, settings: Any) -> None:
    update_tenant(by=SYSTEM, tenant=used.tenant, time_zone=place)
    recut(used.tenant.pk)
    assert "say the same" in verified()
    settings.USAGE_MINUTES_KEPT_DAYS, settings.USAGE_HOURS_KEPT_DAYS = 2, 4
    prune_usage(NOW)
    assert "say the same" in verified(), "what is pruned is not compared"
    settings.USAGE_MINUTES_KEPT_DAYS = 30
    assert "say the same" in verified(), "nor what was pruned before"


@pytest.mark.parametrize("model", [UsageDay, UsageHour, UsageWeek])
def test_a_bent_sum_is_named(used: Cast, model: Any) -> None:
    with all_tenants("a test"):
        bent = model.objects.filter(tenant_id=used.tenant.pk).first()
        model.objects.filter(pk=bent.pk).update(cost_micro=bent.cost_micro + 7)
    out = StringIO()
    with pytest.raises(CommandError, match="differ"):
        call_command("usage", "verify", stdout=out)
    assert used.tenant.pk in out.getvalue() and "cost_micro" in out.getvalue()
    assert used.other.pk not in out.getvalue()


def test_a_bent_sum_of_the_platform_is_named(used: Cast) -> None:
    with all_tenants("a test"):
        bent = UsagePlatformDay.objects.first()
        assert bent is not None
        UsagePlatformDay.objects.filter(pk=bent.pk).update(tokens=bent.tokens - 1)
    out = StringIO()
    with pytest.raises(CommandError, match="1 sums differ"):
        call_command("usage", "verify", stdout=out)
    assert out.getvalue().startswith(f"platform {bent.day} days: tokens")


def test_a_sum_of_the_platform_that_is_missing_is_named(used: Cast) -> None:
    with all_tenants("a test"):
        UsagePlatformDay.objects.all().delete()
    with pytest.raises(CommandError, match="6 sums differ"):
        call_command("usage", "verify", stdout=StringIO())
