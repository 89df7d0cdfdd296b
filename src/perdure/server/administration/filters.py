"""Operations on stored content filters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from perdure.admin.operation import Request
from perdure.admin.problems import Refused
from perdure.admin.records.filters import (
    DeleteFilter,
    Filter,
    FilterDeleted,
    FilterPage,
    FilterStored,
    GetFilter,
    ListFilters,
    PutFilter,
)
from perdure.broker.services import Services
from perdure.config.units import format_time
from perdure.content.stored import StoredFilter
from perdure.errors import FilterInUse
from perdure.server.administration.paging import page_of
from perdure.server.administration.service import Call, Handler


@final
class FilterOperations:
    """Answers what is asked of filters."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        """By request."""
        return {
            ListFilters: self.list_page,
            GetFilter: self.get,
            PutFilter: self.put,
            DeleteFilter: self.delete,
        }

    async def list_page(self, request: ListFilters, _call: Call) -> FilterPage:
        """A page of them."""
        stored = self._services.stored_filters
        names, following = page_of(sorted(stored), request, str)
        return FilterPage(
            items=[Filter(**_row(name, stored[name])) for name in names],
            next_cursor=following,
            estimated_total=len(stored),
        )

    async def get(self, request: GetFilter, _call: Call) -> Filter:
        """One of them."""
        return self._found(request.id)

    async def put(self, request: PutFilter, call: Call) -> FilterStored:
        """Store one, or change it for all who subscribe with it."""
        call.before = self._services.stored_filters.get(request.id)
        try:
            count = await self._services.filters.put(request.id, request.filter)
        except FilterInUse as error:
            raise Refused("conflict", error.message, hint=error.hint) from error
        stored = self._services.stored_filters[request.id]
        call.after = made = FilterStored(**_row(request.id, stored), changed=count)
        return made

    async def delete(self, request: DeleteFilter, call: Call) -> FilterDeleted:
        """Forget one that nobody subscribes with."""
        call.before = self._found(request.id)
        try:
            await self._services.filters.delete(request.id)
        except FilterInUse as error:
            raise Refused("conflict", error.message, hint=error.hint) from error
        return FilterDeleted(request.id)

    def _found(self, name: str) -> Filter:
        stored = self._services.stored_filters.get(name)
        if stored is None:
            raise Refused("not_found", f"there is no stored content filter {name!r}")
        return Filter(**_row(name, stored))


def _row(name: str, stored: StoredFilter) -> dict[str, Any]:
    return {
        "id": name,
        "filter": stored.where,
        "since": format_time(stored.changed_at_us),
        "since_us": stored.changed_at_us,
        "state": "settled" if stored.settled else "changing",
    }
