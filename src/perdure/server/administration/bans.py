"""Operations on bans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from perdure.admin.operation import Request
from perdure.admin.problems import Refused
from perdure.admin.records.bans import (
    AddBan,
    BanMade,
    BanPage,
    BanRemoved,
    ListBans,
    RemoveBan,
)
from perdure.clock import Clock
from perdure.config.units import parse_time
from perdure.server.administration.paging import sorted_page
from perdure.server.administration.service import Call, Handler
from perdure.server.bans import BanKeeper, ban_row


@final
class BanOperations:
    """Answers what is asked of bans.

    Args:
        keeper: keeps them.
        clock: wall time.
    """

    def __init__(self, keeper: BanKeeper, clock: Clock) -> None:
        self._keeper = keeper
        self._clock = clock

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        """By request."""
        return {ListBans: self.list_page, AddBan: self.add, RemoveBan: self.remove}

    async def list_page(self, request: ListBans, _call: Call) -> BanPage:
        """A page of them."""
        bans = self._keeper.ordered()
        columns = {"since": lambda ban: ban.since_us, "until": lambda ban: ban.until_us or None}
        items, following = sorted_page(
            bans, request, lambda ban: f"{ban.kind} {ban.value}", columns
        )
        return BanPage(
            items=[ban_row(ban) for ban in items],
            next_cursor=following,
            estimated_total=len(bans),
        )

    async def add(self, request: AddBan, call: Call) -> BanMade:
        """Ban durably and disconnect whom it means."""
        until_us = 0
        if request.until is not None:
            now_us = self._clock.now_us()
            try:
                until_us = parse_time(request.until, now_us)
            except ValueError as error:
                raise Refused("bad_request", f"until: {error}") from error
            if until_us <= now_us:
                raise Refused("bad_request", f"until: {request.until} has passed")
        call.before = self._keeper.get(request.kind, request.value)
        call.after = made = await self._keeper.add(
            request.kind, request.value, reason=request.reason, until_us=until_us
        )
        return made

    async def remove(self, request: RemoveBan, call: Call) -> BanRemoved:
        """Take a ban back."""
        call.before = self._keeper.get(request.kind, request.value)
        removed = await self._keeper.remove(request.kind, request.value)
        if removed is None:
            raise Refused("not_found", f"there is no ban of {request.kind} {request.value!r}")
        return removed
