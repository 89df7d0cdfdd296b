"""Operations on forwarders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from perdure.admin.operation import Request
from perdure.admin.problems import Refused
from perdure.admin.records.forwarders import (
    AddForwarder,
    ForwarderChanged,
    ForwarderDetails,
    ForwarderPage,
    ListForwarders,
    PauseForwarder,
    RemoveForwarder,
    ResumeForwarder,
    ShowForwarder,
)
from perdure.forwarders.service import ForwarderService
from perdure.server.administration.paging import page_of
from perdure.server.administration.service import Call, Handler


@final
class ForwarderOperations:
    """Answers what is asked of forwarders.

    Args:
        service: runs them.
    """

    def __init__(self, service: ForwarderService) -> None:
        self._service = service

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
        items, following = page_of(rows, request, lambda row: row.name)
        return ForwarderPage(items=items, next_cursor=following, estimated_total=len(rows))

    async def show(self, request: ShowForwarder, _call: Call) -> ForwarderDetails:
        """One of them."""
        found = self._service.details(request.name)
        if found is None:
            raise _unknown(request.name)
        return found

    async def add(self, request: AddForwarder, _call: Call) -> ForwarderChanged:
        """Add one."""
        await self._service.add(request.name, dict(request.settings))
        return ForwarderChanged(name=request.name, action="added")

    async def remove(self, request: RemoveForwarder, _call: Call) -> ForwarderChanged:
        """Remove one."""
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


def _unknown(name: str) -> Refused:
    return Refused("not_found", f"there is no forwarder {name!r}")
