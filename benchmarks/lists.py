"""Times every list of the console and of its API on a platform's worth of rows, and counts their statements.

    python -m benchmarks.seed && python -m benchmarks.lists        beside a running `manage.py up`
    python -m benchmarks.lists --only audit --repeats 50

Each address is asked for in this process, through all of the console's middleware, by an operator, who sees every
tenant, and by the owner of the largest one. The accounts it makes for that have no password and go when it ends.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import django

from benchmarks.seed import join_platform

MOST_MS, MOST_STATEMENTS = 300, 10

PAGES = (
    "/",
    "/models/",
    "/fleet/",
    "/tenants/",
    "/tenants/?sort=-created",
    "/tenants/?page=30",
    "/tenants/?q=team+77",
    "/tenants/{slug}/",
    "/tenants/{slug}/statement",
    "/people/",
    "/people/?q=a",
    "/organisations/",
    "/sessions/",
    "/profiles/",
    "/prices/",
    "/quotas/",
    "/quotas/?page=3",
    *(f"/usage/?days={span}" for span in ("1", "7", "30", "90", "month", "last-month")),
    *(f"/usage/?days=90&by={group}" for group in ("day", "tenant", "key", "model", "version", "class")),
    *(f"/usage/?days=month&by={group}" for group in ("day", "tenant", "key", "model", "version", "class")),
    "/audit/",
    "/audit/?page=20",
    "/audit/?q=service+42",
    "/audit/?q=nothing-says-this",
    "/audit/?action=key.created",
    "/audit/?outcome=failure",
    "/audit/exports",
    "/playground/",
    "/reference/",
)
LISTS = (
    "/tenants",
    "/tenants/{tenant}/members",
    "/tenants/{tenant}/keys",
    "/tenants/{tenant}/quotas",
    "/accounts",
    "/keys",
    "/models",
    "/deployments",
    "/profiles",
    "/bindings",
    "/quotas",
    "/prices",
    *(
        f"/usage?group_by={groups}"
        for groups in ("day", "tenant", "key", "tenant,key,model,version,class,day")
    ),
    "/usage?group_by=tenant,key&since=2026-09-02",
    "/audit",
    "/audit?q=service+42",
    "/audit?q=nothing-says-this",
    "/audit?action=key.created",
    "/audit?outcome=failure",
    "/audit?actor_id=77",
    "/audit?target_type=api_key&target_id=key_none",
    "/audit?request_id=req_none",
    "/audit?trace_id=none",
    "/audit?since=2026-10-01&until=2026-10-02",
    "/audit-exports",
    "/hosts",
    "/replicas",
)


class Asked(NamedTuple):
    address: str
    statements: int
    p50_ms: float
    p95_ms: float
    size_bytes: int


def main(arguments: Sequence[str] = sys.argv[1:]) -> None:
    options = _options(arguments)
    join_platform()
    django.setup()
    importlib.import_module("console.asgi")  # its memory is settled, as where people ask
    missed = 0
    with _people() as (clients, names):
        for who, client in clients.items():
            for address in (*PAGES, *(f"/api/v1{path}" for path in LISTS)):
                if options.only in address:
                    missed += _show(who, measure(client, address.format(**names), options.repeats))
    raise SystemExit(1 if missed else 0)


def measure(client: Any, address: str, repeats: int) -> Asked:
    """Wall milliseconds of the whole answer, the first one (caches of plans and templates) left out."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as statements:
        answer = client.get(address)
        count = len(statements)
    if answer.status_code not in (200, 403, 404):
        raise SystemExit(f"{address}: {answer.status_code}")
    times = sorted(_timed_ms(client, address) for _ in range(repeats))
    return Asked(
        f"{address} ({answer.status_code})" if answer.status_code != 200 else address,
        count,
        statistics.median(times),
        times[max(0, -(-len(times) * 95 // 100) - 1)],
        len(answer.content),
    )


def _timed_ms(client: Any, address: str) -> float:
    started = time.perf_counter()
    client.get(address)
    return (time.perf_counter() - started) * 1000


def _show(who: str, asked: Asked) -> bool:
    is_missed = asked.p95_ms >= MOST_MS or asked.statements > MOST_STATEMENTS
    print(
        f"{'MISSED' if is_missed else '      '} {who:8} {asked.statements:3} statements "
        f"p50 {asked.p50_ms:7.1f} ms  p95 {asked.p95_ms:7.1f} ms  {asked.size_bytes:8,} B  {asked.address}",
        flush=True,
    )
    return is_missed


@contextmanager
def _people() -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """An operator and an owner, signed in, and what the addresses name."""
    from django.conf import settings
    from django.test import Client

    from tenants.models import Membership, User
    from tenants.scoping import all_tenants

    settings.ALLOWED_HOSTS = ["*"]
    settings.API_REQUESTS_PER_MINUTE = 0
    with all_tenants("a benchmark asks for every tenant's lists"):
        tenant = _largest()
        operator = User.objects.create(username=f"measuring-{time.time_ns()}", platform_role="operator")
        owner = User.objects.create(username=f"measuring-{time.time_ns()}")
        member = Membership.objects.create(tenant=tenant, user=owner, role="owner")
        clients = {"operator": Client(headers={"accept": "text/html"}), "owner": Client()}
        clients["operator"].force_login(operator)
        clients["owner"].force_login(owner)
    try:
        yield clients, {"slug": tenant.slug, "tenant": tenant.pk}
    finally:
        with all_tenants("a benchmark takes its accounts away"):
            member.delete()
            User.objects.filter(pk__in=[operator.pk, owner.pk]).delete()


def _largest() -> Any:
    """The tenant with the most rows of usage by day."""
    from django.db.models import Count

    from tenants.models import Tenant, UsageDay

    found = UsageDay.objects.values_list("tenant_id").annotate(rows=Count("*")).order_by("-rows").first()
    return Tenant.objects.get(pk=found[0]) if found else Tenant.objects.first()


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lists", description="Time every list.")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--only", default="", help="addresses that contain this")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
