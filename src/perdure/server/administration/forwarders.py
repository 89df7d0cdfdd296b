"""Operations on forwarders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, final

import msgspec

from perdure.admin.operation import Request
from perdure.admin.problems import Refused
from perdure.admin.records.forwarders import (
    AddForwarder,
    Forwarder,
    ForwarderChanged,
    ForwarderDetails,
    ForwarderPage,
    ListForwarders,
    PauseForwarder,
    RemoveForwarder,
    ResumeForwarder,
    ShowForwarder,
)
from perdure.admin.revisions import check_revision, revision_of
from perdure.forwarders.service import ForwarderService
from perdure.server.administration.paging import sorted_page
from perdure.server.administration.service import Call, Handler

_COLUMNS: Final[Mapping[str, Callable[[Forwarder], Any]]] = {
    "state": lambda row: row.state,
    "lag": lambda row: row.lag_messages,
    "failures": lambda row: row.failures,
}


@final
class ForwarderOperations:
    """Answers what is asked of forwarders.

    Args:
        service: runs them.
    """

    def __init__(self, service: ForwarderService) -> None:
        self._service = service
        self._lock = asyncio.Lock()

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        """By request."""
        return {
            ListForwarders: self.list_page,
            ShowForwarder: self.show,
            AddForwarder: self.add,
            RemoveForwarder: self.remove,
            PauseForwarder: self.pause,
            ResumeForwarder: self.resume,
        }

    async def list_page(self, request: ListForwarders, _call: Call) -> ForwarderPage:
        """A page of them."""
        rows = self._service.rows()
        items, following = sorted_page(rows, request, lambda row: row.name, _COLUMNS)
        return ForwarderPage(items=items, next_cursor=following, estimated_total=len(rows))

    async def show(self, request: ShowForwarder, _call: Call) -> ForwarderDetails:
        """One of them."""
        found = self._service.details(request.name)
        revision = self._revision(request.name)
        if found is None or revision is None:
            raise _unknown(request.name)
        return msgspec.structs.replace(found, revision=revision)

    async def add(self, request: AddForwarder, _call: Call) -> ForwarderChanged:
        """Add one."""
        async with self._lock:
            self._check(request.name, request.if_match)
            is_new = await self._service.add(request.name, dict(request.settings))
        return ForwarderChanged(name=request.name, action="added" if is_new else "changed")

    async def remove(self, request: RemoveForwarder, _call: Call) -> ForwarderChanged:
        """Remove one."""
        async with self._lock:
            self._check(request.name, request.if_match)
            if not await self._service.remove(request.name):
                raise _unknown(request.name)
        return ForwarderChanged(name=request.name, action="removed")

    async def pause(self, request: PauseForwarder, _call: Call) -> ForwarderChanged:
        """Let one rest."""
        if not await self._service.pause(request.name, paused=True):
            raise _unknown(request.name)
        return ForwarderChanged(name=request.name, action="paused")

    async def resume(self, request: ResumeForwarder, _call: Call) -> ForwarderChanged:
        """Let one go on."""
        if not await self._service.pause(request.name, paused=False):
            raise _unknown(request.name)
        return ForwarderChanged(name=request.name, action="resumed")

    def _revision(self, name: str) -> str | None:
        settings = self._service.settings_of(name)
        return None if settings is None else revision_of(name, settings)

    def _check(self, name: str, asked: str) -> None:
        check_revision(asked, self._revision(name), f"the forwarder {name!r}")


def _unknown(name: str) -> Refused:
    return Refused("not_found", f"there is no forwarder {name!r}")
