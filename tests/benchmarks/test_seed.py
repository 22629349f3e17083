"""A seeded database is one the platform could have written: constraints hold, sums agree, the trail verifies."""

from __future__ import annotations

import random
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.db.models import Sum

from benchmarks.seed import seed
from benchmarks.seed_rows import Shape
from serving.control.quotas.models import Quota
from tenants.models import (
    ApiKey,
    AuditEvent,
    Tenant,
    UsageDay,
    UsageHour,
    UsageMinute,
    UsagePlatformDay,
    UsageWeek,
)
from tenants.scoping import all_tenants


@pytest.mark.django_db(transaction=True)
def test_a_small_seed_is_whole() -> None:
    parameters: dict[str, Any] = dict(connection.get_connection_params())
    names = {
        name: parameters[name]
        for name in ("host", "port", "user", "password", "dbname")
        if parameters.get(name)
    }
    with psycopg.connect(**names, autocommit=True) as raw:
        raw.execute("SELECT set_config('tidegate.tenants', '*', false)")
        seed(raw, Shape(tenants=5, keys=20, days=3), usage=500, audit=40, draw=random.Random(1))
    with all_tenants("a test"):
        assert Tenant.objects.count() == 5 and ApiKey.objects.count() == 20
        assert UsageMinute.objects.count() == 500 and AuditEvent.objects.count() == 40
        assert Quota.objects.count() == 5 * 4
        minutes, *wider = (
            model.objects.aggregate(n=Sum("requests"), cost=Sum("cost_micro"))
            for model in (UsageMinute, UsageHour, UsageDay, UsageWeek, UsagePlatformDay)
        )
    assert wider == [minutes] * 4
