"""Operations on stored content filters."""

from __future__ import annotations

import asyncio
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
from perdure.admin.revisions import check_revision, revision_of
from perdure.broker.services import Services
from perdure.config.units import format_time
from perdure.content.stored import StoredFilter
from perdure.errors import FilterInUse
from perdure.server.administration.paging import sorted_page
from perdure.server.administration.service import Call, Handler


@final
class FilterOperations:
    """Answers what is asked of filters."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._lock = asyncio.Lock()

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
        columns = {"since": lambda name: stored[name].changed_at_us}
        names, following = sorted_page(sorted(stored), request, str, columns)
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
        async with self._lock:
            self._check(request.id, request.if_match)
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
        async with self._lock:
            call.before = self._found(request.id)
            self._check(request.id, request.if_match)
            try:
                await self._services.filters.delete(request.id)
            except FilterInUse as error:
                raise Refused("conflict", error.message, hint=error.hint) from error
        return FilterDeleted(request.id)

    def _check(self, name: str, revision: str) -> None:
        stored = self._services.stored_filters.get(name)
        now = None if stored is None else _revision(name, stored)
        check_revision(revision, now, f"the filter {name!r}")

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
        "revision": _revision(name, stored),
    }


def _revision(name: str, stored: StoredFilter) -> str:
    return revision_of(name, stored.where, stored.changed_at_us)
