"""Lists: server-side paging, sorting and filters, all of it in the address so that it can be shared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.core.paginator import Page, Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

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


class CappedPaginator(Paginator):
    """Counts no further than `max_counted` rows, and says so in `is_capped`."""

    def __init__(self, rows: QuerySet[Row], page_rows: int, max_counted: int | None) -> None:
        super().__init__(rows, page_rows)
        self._rows, self._max_counted = rows, max_counted

    @cached_property
    def count(self) -> int:
        if self._max_counted is None:
            return self._rows.count()
        return min(self._max_counted, self._rows.order_by()[: self._max_counted + 1].count())

    @property
    def is_capped(self) -> bool:
        return self.count == self._max_counted


def listing(
    request: HttpRequest,
    rows: QuerySet[Row],
    *,
    sorts: Mapping[str, str],
    default: str,
    filters: Mapping[str, str] | None = None,
    page_rows: int = PAGE_ROWS,
    max_counted: int | None = None,
) -> Listing[Row]:
    """`sorts` maps names in the address to columns; `filters` maps names to lookups (`""`: done by the caller).

    What the address asks and the list does not know is ignored, never an error. Beyond `max_counted` rows are
    neither counted nor reached: counting a million takes longer than showing fifty.
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
    sorted_rows = rows.filter(**conditions).order_by(
        order, *([] if column == rows.model._meta.pk.name else ["pk"])
    )
    paginator = CappedPaginator(sorted_rows, page_rows, max_counted)
    return Listing(paginator.get_page(request.GET.get("page")), sort, chosen)
