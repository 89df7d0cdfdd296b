"""Bans of a cluster: each is a line of the ban file under a name in the log, which all nodes read.

Invariant: every node has the same ones in force, besides those of its own file, once it has read as
far.
"""

from __future__ import annotations

import hashlib
from typing import Final, final

from perdure.broker.access.ban_enforcer import BanEnforcer
from perdure.broker.auth.bans import Ban, BanList, ban_line, ban_of
from perdure.broker.cluster.notices import Notices
from perdure.errors import ConfigError
from perdure.limits import BANS_MAX
from perdure.model.reserved import BANS_PREFIX
from perdure.observe.logs import get_logger

log = get_logger("admin")

NAME_BYTES: Final = 16

ADOPTED_AT_ONCE: Final = 4096
"""Bans of a file that are one batch."""


def name_of(ban: Ban) -> str:
    """Under which a ban is in the log: what it bans may be no part of a topic."""
    text = f"{ban.kind}\0{ban.value}".encode()
    return hashlib.blake2b(text, digest_size=NAME_BYTES).hexdigest()


@final
class ClusterBans:
    """Has the bans of all nodes in force on this one.

    Args:
        enforcer: enforces them.
        notices: the log.
        own: those of this node's file.

    Attributes:
        own: those of this node's file.
    """

    def __init__(self, enforcer: BanEnforcer, notices: Notices, own: BanList) -> None:
        self._enforcer = enforcer
        self._notices = notices
        self.own = own
        self._shared: dict[str, Ban] = {}
        self._closed = 0
        notices.listeners[BANS_PREFIX] = self

    def heard(self, name: str, value: bytes) -> None:
        """The log has a ban, or has it no more."""
        if not value:
            self._shared.pop(name, None)
            return
        try:
            self._shared[name] = ban_of(value.decode())
        except (ConfigError, ValueError) as error:
            # A later release may know more kinds; what is banned by them is that one's.
            log.error("ban.unknown", name=name, reason=str(error), hint="upgrade this node")

    def settle(self) -> None:
        """Enforce what was heard."""
        self._closed = self._enforcer.use(BanList([*self.own, *self._shared.values()]))

    def use_own(self, bans: BanList) -> int:
        """Have other bans of this node's file; returns the clients that were disconnected."""
        self.own = bans
        self.settle()
        return self._closed

    async def adopt(self, *, now_us: int) -> int:
        """Put the bans of this node's file into the log, but for those that hold there for as long.

        Returns:
            How many were put there.

        Raises:
            ConfigError: there are too many.
            StorageUnavailable: the log does not take them now; some may be there.
        """
        new = {}
        for ban in self.own:
            name = name_of(ban)
            there = self._shared.get(name)
            if not ban.is_over(now_us) and (there is None or not there.outlasts(ban)):
                new[name] = ban_line(ban).encode()
        if len({*self._shared, *new}) > BANS_MAX:
            raise ConfigError(
                f"the cluster would have more than {BANS_MAX} bans",
                hint="ban a network instead of its hosts",
            )
        values = list(new.items())
        for at in range(0, len(values), ADOPTED_AT_ONCE):
            await self._notices.change(BANS_PREFIX, dict(values[at : at + ADOPTED_AT_ONCE]))
        return len(new)

    async def add(self, ban: Ban, *, now_us: int) -> int:
        """Ban on all nodes; returns the clients of this one that were disconnected.

        Bans that are over go with it.

        Raises:
            ConfigError: there are too many.
            StorageUnavailable: the log does not take it now.
        """
        name = name_of(ban)
        over = [each for each, old in self._shared.items() if old.is_over(now_us)]
        values = dict.fromkeys(over, b"")
        values[name] = ban_line(ban).encode()
        if len({*self._shared, name}.difference(over)) > BANS_MAX:
            raise ConfigError(
                f"the cluster has {BANS_MAX} bans", hint="ban a network instead of its hosts"
            )
        self._closed = 0
        await self._notices.change(BANS_PREFIX, values)
        return self._closed

    async def remove(self, wanted: Ban) -> bool:
        """Take a ban back on all nodes; returns whether there was one.

        Raises:
            StorageUnavailable: the log does not take it now.
        """
        name = name_of(wanted)
        if name not in self._shared:
            return False
        await self._notices.change(BANS_PREFIX, {name: b""})
        return True
