"""Lists: server-side paging, sorting and filters, all of it in the address so that it can be shared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.core.paginator import Page, Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest

Row = TypeVar("Row", bound=Model)
PAGE_ROWS = 25


@dataclass(frozen=True, slots=True)
class Listing(Generic[Row]):
    """One page of rows, how they are sorted, and which filters are set."""

    page: Page[Row]
    sort: str
    filters: dict[str, str]

    @property
    def is_filtered(self) -> bool:
        return any(self.filters.values())


def listing(
    request: HttpRequest,
    rows: QuerySet[Row],
    *,
    sorts: Mapping[str, str],
    default: str,
    filters: Mapping[str, str] | None = None,
    page_rows: int = PAGE_ROWS,
) -> Listing[Row]:
    """`sorts` maps names in the address to columns; `filters` maps names to lookups (`""`: done by the caller).

    What the address asks and the list does not know is ignored, never an error.
    """
    chosen = {name: request.GET.get(name, "").strip()[:100] for name in filters or {}}
    conditions: dict[str, Any] = {
        lookup: chosen[name] for name, lookup in (filters or {}).items() if lookup and chosen[name]
    }
    sort = request.GET.get("sort", default)
    if sort.lstrip("-") not in sorts:
        sort = default
    column = sorts[sort.lstrip("-")]
    order = f"-{column}" if sort.startswith("-") else column
    paginator = Paginator(rows.filter(**conditions).order_by(order, "pk"), page_rows)
    return Listing(paginator.get_page(request.GET.get("page")), sort, chosen)
