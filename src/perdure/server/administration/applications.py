"""Operations on applications."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from perdure.admin.operation import Request
from perdure.admin.problems import Refused
from perdure.admin.records.applications import (
    AddApplication,
    Application,
    ApplicationChanged,
    ApplicationPage,
    ListApplications,
    RemoveApplication,
    ShowApplication,
)
from perdure.forwarders.applications import Applications
from perdure.server.administration.paging import page_of
from perdure.server.administration.service import Call, Handler


@final
class ApplicationOperations:
    """Answers what is asked of applications.

    Args:
        applications: of the broker.
    """

    def __init__(self, applications: Applications) -> None:
        self._applications = applications

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        """By request."""
        return {
            ListApplications: self.list_page,
            ShowApplication: self.show,
            AddApplication: self.add,
            RemoveApplication: self.remove,
        }

    async def list_page(self, request: ListApplications, _call: Call) -> ApplicationPage:
        """A page of them."""
        rows = self._applications.rows()
        items, following = page_of(rows, request, lambda row: row.name)
        return ApplicationPage(items=items, next_cursor=following, estimated_total=len(rows))

    async def show(self, request: ShowApplication, _call: Call) -> Application:
        """One of them."""
        for row in self._applications.rows():
            if row.name == request.name:
                return row
        raise _unknown(request.name)

    async def add(self, request: AddApplication, _call: Call) -> ApplicationChanged:
        """Add one."""
        is_new = await self._applications.add(request.name, request.filters)
        return ApplicationChanged(name=request.name, action="added" if is_new else "changed")

    async def remove(self, request: RemoveApplication, _call: Call) -> ApplicationChanged:
        """Remove one."""
        if not await self._applications.remove(request.name):
            raise _unknown(request.name)
        return ApplicationChanged(name=request.name, action="removed")


def _unknown(name: str) -> Refused:
    return Refused("not_found", f"there is no application {name!r}")
