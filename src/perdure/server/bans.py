"""The bans of a running broker: their file, and what enforces them, kept in step.

Those that are made on a node of a cluster are in its log instead of a file (``cluster_bans``), and
hold on all nodes; those of a node's file hold on that node as well. What a data directory has from
when it was a single broker's goes into the log (``BanKeeper.adopt``), and comes back out of it when
it is one again (``left_cluster``).

Invariant: a ban that an administrator was told of is in the file, and in force; changes come one
after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol, final

import msgspec

from perdure.admin.records import bans as records
from perdure.broker.access.ban_enforcer import BanEnforcer
from perdure.broker.auth.bans import BanFile, BanList, make_ban
from perdure.broker.services import Services
from perdure.clock import Clock, SystemClock
from perdure.config.schema import Config
from perdure.config.units import format_time
from perdure.errors import ConfigError, StorageUnavailable
from perdure.observe.logs import get_logger
from perdure.server.cluster_bans import ClusterBans

log = get_logger("admin")

BAN_FILE: Final = "bans"
"""In the data directory, if no other file is named."""

ADOPTED: Final = "# what stood here is in the log of the cluster"

TEMPORARY_KIND: Final = "login"
"""A ban that the broker alone makes, and that stands in no file."""


def ban_file(config: Config) -> BanFile | None:
    """Where a broker's bans are; None = nowhere, as nothing else is kept either."""
    if config.auth.ban_file:
        return BanFile(Path(config.auth.ban_file))
    if not config.storage.traits.is_kept:
        return None
    return BanFile(Path(config.storage.path) / BAN_FILE)


def read_bans(config: Config) -> BanList:
    """The bans of a broker that starts.

    Raises:
        ConfigError: the file cannot be read, or a line is wrong.
    """
    file = ban_file(config)
    return BanList() if file is None else file.load()


class AnyBan(Protocol):
    """A ban of the file, or one that the broker has made by itself."""

    @property
    def kind(self) -> str:
        """What the value is."""
        ...

    @property
    def value(self) -> str:
        """Whom it means."""
        ...

    @property
    def until_us(self) -> int:
        """Wall time; 0 = for ever."""
        ...

    @property
    def since_us(self) -> int:
        """Wall time."""
        ...

    @property
    def reason(self) -> str:
        """For operators."""
        ...


def ban_row(ban: AnyBan) -> records.Ban:
    """A ban as it is shown."""
    return records.Ban(
        kind=ban.kind,
        value=ban.value,
        until=format_time(ban.until_us),
        until_us=ban.until_us or None,
        since=format_time(ban.since_us),
        since_us=ban.since_us,
        reason=ban.reason,
    )


@final
class BanKeeper:
    """Changes the bans of a running broker.

    Args:
        enforcer: enforces them.
        file: where they are; None = in memory alone.
        clock: wall time.
        cluster: those of all nodes; None = there is no cluster.
        is_named: the configuration names the file.
    """

    def __init__(
        self,
        enforcer: BanEnforcer,
        file: BanFile | None,
        clock: Clock,
        cluster: ClusterBans | None = None,
        *,
        is_named: bool = False,
    ) -> None:
        self._enforcer = enforcer
        self._file = file
        self._clock = clock
        self._cluster = cluster
        self._is_named = is_named
        self._lock = asyncio.Lock()

    def ordered(self) -> Sequence[AnyBan]:
        """The bans in force by kind and value, those that the broker has made by itself included,
        and those that are over and not yet taken out."""
        made = self._enforcer.bans.ordered
        temporary = self._enforcer.temporary()
        if not temporary:
            return made
        return sorted((*made, *temporary), key=lambda ban: (ban.kind, ban.value))

    def get(self, kind: str, value: str) -> records.Ban | None:
        """One ban, as it was made."""
        found: AnyBan | None = self._enforcer.bans.get(kind, value)
        if found is None:
            temporary = self._enforcer.temporary()
            found = next((ban for ban in temporary if (ban.kind, ban.value) == (kind, value)), None)
        return None if found is None else ban_row(found)

    def read(self, file: BanFile | None) -> BanList:
        """What a reload will have in force: the file's bans, or without one those of now.

        Raises:
            ConfigError: the file cannot be read, or a line is wrong.
        """
        if file is not None:
            return file.load()
        return self._enforcer.bans if self._cluster is None else self._cluster.own

    def reload(self, file: BanFile | None, bans: BanList) -> None:
        """Have what ``read`` gave in force, and change this file from now on."""
        self._file = file
        if self._cluster is not None:
            closed = self._cluster.use_own(bans)
        else:
            closed = self._enforcer.use(bans)
        log.info("bans.loaded", bans=len(bans), closed=closed)

    async def adopt(self) -> None:
        """Have the bans of a directory that was a single broker's in the cluster's log.

        Those of a file that the configuration names stay what that says: this node's.
        """
        cluster, file = self._cluster, self._file
        if cluster is None or file is None or self._is_named or not len(cluster.own):
            return
        async with self._lock:
            try:
                count = await cluster.adopt(now_us=self._clock.now_us())
                cluster.use_own(file.clear(ADOPTED))
            except (ConfigError, StorageUnavailable) as error:
                log.warning(
                    "bans.not_shared",
                    error=error.message,
                    hint="they hold on this node; the next start tries again",
                )
                return
        log.info("bans.shared", bans=count)

    async def add(self, kind: str, value: str, *, reason: str, until_us: int) -> records.BanMade:
        """Ban, durably, and disconnect whom it means.

        Raises:
            ConfigError: there can be no such ban, or the file cannot be written.
            StorageUnavailable: the cluster's log does not take it now.
        """
        now_us = self._clock.now_us()
        ban = make_ban(kind, value, reason=reason, since_us=now_us, until_us=until_us)
        async with self._lock:
            file = self._file
            if self._cluster is not None:
                closed = await self._cluster.add(ban, now_us=now_us)
            elif file is not None:
                closed = self._enforcer.use(await asyncio.to_thread(file.add, ban, now_us=now_us))
            else:
                closed = self._enforcer.use(BanList([*self._enforcer.bans, ban]))
        row = ban_row(ban)
        log.warning(
            "ban.added",
            kind=row.kind,
            value=row.value,
            until=row.until,
            since=row.since,
            reason=row.reason,
            closed=closed,
        )
        return records.BanMade(**msgspec.structs.asdict(row), closed=closed)

    async def remove(self, kind: str, value: str) -> records.BanRemoved | None:
        """Take a ban back, durably; None = there was none.

        Raises:
            ConfigError: there can be no such ban, or the file cannot be written.
        """
        lifted = self._enforcer.lift(kind, value)
        if kind == TEMPORARY_KIND:
            if not lifted:
                return None
            log.warning("ban.removed", kind=kind, value=value)
            return records.BanRemoved(kind, value)
        wanted = make_ban(kind, value)
        async with self._lock:
            file = self._file
            in_log = self._cluster is not None and await self._cluster.remove(wanted)
            if file is not None:
                now_us = self._clock.now_us()
                bans, found = await asyncio.to_thread(file.remove, kind, value, now_us=now_us)
            else:
                own = self._enforcer.bans if self._cluster is None else self._cluster.own
                found = own.get(wanted.kind, wanted.value) is not None
                bans = BanList(
                    ban for ban in own if (ban.kind, ban.value) != (wanted.kind, wanted.value)
                )
            if self._cluster is not None:
                self._cluster.use_own(bans)
                found = found or in_log
            else:
                self._enforcer.use(bans)
        if not found and not lifted:
            return None
        log.warning("ban.removed", kind=wanted.kind, value=wanted.value)
        return records.BanRemoved(wanted.kind, wanted.value)


def make_keeper(config: Config, services: Services, bans: BanList) -> BanKeeper:
    """The keeper of a broker that has not started yet.

    Args:
        config: names the file.
        services: of the broker.
        bans: of the file.
    """
    cluster = None
    if services.peers is not None:
        cluster = ClusterBans(services.ban_enforcer, services.notices, bans)
    return BanKeeper(
        services.ban_enforcer,
        ban_file(config),
        SystemClock(),
        cluster,
        is_named=bool(config.auth.ban_file),
    )
