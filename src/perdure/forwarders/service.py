"""All forwarders of a broker: started and stopped with it, added, paused and removed while it runs.

In a cluster one node runs a forwarder: a duty (``storage.ordered.duties``), looked at each second.
It begins when the node before has let go or is no member any more; the later owner of its session
fences the earlier. Those that are added, and which are paused, all nodes read in the log.

Invariant: what an administrator was told of is kept (``keeping``), and in force; changes come one
after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from perdure.admin.records.forwarders import Forwarder as Record
from perdure.admin.records.forwarders import ForwarderDetails
from perdure.config.fields import field_types
from perdure.config.load import REDACTED
from perdure.config.schema import ForwarderConfig, type_of
from perdure.errors import ConfigError, StorageError
from perdure.forwarders import definitions
from perdure.forwarders.check import opener_of
from perdure.forwarders.counts import Counts
from perdure.forwarders.forwarder import PAUSED, STANDBY, STOPPED, Forwarder
from perdure.forwarders.keeping import Keeper
from perdure.forwarders.output import Context
from perdure.forwarders.session import DurableSession
from perdure.limits import FORWARDERS_MAX

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from perdure.broker.services import Services

TELL_S: Final = 1.0
"""How often gauges are written and duties are looked at."""


@final
class ForwarderService:
    """The forwarders of one broker.

    Args:
        services: of the broker.
        configured: those of the configuration.
        keeper: has the others, and which are paused.
        origin: identity of this broker (or cluster), for loop protection.
        log: where events go.

    Raises:
        ConfigError: settings or the file cannot be used.
    """

    name: str = "forwarders"

    def __init__(
        self,
        services: Services,
        configured: Mapping[str, ForwarderConfig],
        *,
        keeper: Keeper,
        origin: str,
        log: FilteringBoundLogger,
    ) -> None:
        self._services = services
        self._configured = dict(configured)
        self._keeper = keeper
        self._origin = origin
        self._log = log
        self._added = {
            name: definitions.bind_settings(name, given)
            for name, given in keeper.definitions.forwarders.items()
        }
        self._resumed = dict(keeper.definitions.resumed)
        self._forwarders: dict[str, Forwarder] = {}
        self._lock = asyncio.Lock()
        self._teller: asyncio.Task[None] | None = None
        self._record_qos0 = services.publish_path.record_qos0
        for name, settings in self._all().items():
            self._forwarders[name] = self._make(name, settings)
        self._look_at_qos0()

    # -- the broker's life -----------------------------------------------------------------

    async def start(self) -> None:
        """Run what is not paused."""
        self._services.retention.holds.readers = self._held
        for name, forwarder in self._forwarders.items():
            await self._begin(name, forwarder)
        self._teller = asyncio.get_running_loop().create_task(self._tell(), name="forwarders")
        self._keeper.on_changed = self._changed
        await self._follow()  # what the log has was not known before it was read

    async def stop(self) -> None:
        """End all, side by side."""
        if self._teller is not None:
            self._teller.cancel()
            await asyncio.gather(self._teller, return_exceptions=True)
        await asyncio.gather(*(each.stop() for each in self._forwarders.values()))

    def reload(self, configured: Mapping[str, ForwarderConfig]) -> None:
        """Take the configuration's forwarders as they are now.

        Raises:
            ConfigError: one cannot be used; all go on as they were.
        """
        before = self._all()
        changed = {
            name: self._make(name, settings)
            for name, settings in configured.items()
            if before.get(name) != settings
        }
        gone = [name for name in self._configured if name not in configured]
        self._configured = dict(configured)
        for name in gone:
            self._spawn(self._replace(name, None))
        for name, forwarder in changed.items():
            self._spawn(self._replace(name, forwarder))
        self._look_at_qos0()

    # -- what administrators ask -----------------------------------------------------------

    def rows(self) -> list[Record]:
        """All forwarders, by name."""
        return [self._forwarders[name].row() for name in sorted(self._forwarders)]

    def details(self, name: str) -> ForwarderDetails | None:
        """One, with its settings; None if there is none."""
        forwarder = self._forwarders.get(name)
        if forwarder is None:
            return None
        return ForwarderDetails(
            **msgspec.structs.asdict(forwarder.row()),
            configured=name in self._configured,
            settings=shown(forwarder.settings),
        )

    def settings_of(self, name: str) -> ForwarderConfig | None:
        """The settings of a forwarder; None if there is none."""
        forwarder = self._forwarders.get(name)
        return None if forwarder is None else forwarder.settings

    async def add(self, name: str, given: dict[str, Any]) -> bool:
        """Add a forwarder, or change one that was added; it lasts through restarts.

        Returns:
            Whether it is a new one.

        Raises:
            ConfigError: it cannot be used.
            StorageError: it cannot be kept.
        """
        async with self._lock:
            if name in self._configured:
                raise ConfigError(
                    f"forwarder {name} is in the configuration: change it there, and reload",
                    path=f"forwarders.{name}",
                )
            is_new = name not in self._forwarders
            if is_new and len(self._forwarders) >= FORWARDERS_MAX:
                raise ConfigError(f"there are {FORWARDERS_MAX} forwarders", path="forwarders")
            settings = definitions.bind_settings(name, given)
            try:
                forwarder = self._make(name, settings)
            except ConfigError as error:
                raise _naming_the_setting(error) from error
            await self._keep({**self._kept.forwarders, name: given})
            self._added[name] = settings
            await self._swap(name, forwarder)
            self._look_at_qos0()
        self._log.warning("forwarder.added", forwarder=name, type=type_of(settings))
        return is_new

    async def remove(self, name: str) -> bool:
        """Remove a forwarder and its cursor; False if there is none.

        Raises:
            ConfigError: it is in the configuration.
            StorageError: it is still there.
        """
        async with self._lock:
            if name not in self._forwarders:
                return False
            if name in self._configured:
                raise ConfigError(
                    f"forwarder {name} is in the configuration: take it out there, and reload",
                    path=f"forwarders.{name}",
                )
            await self._keep(self._kept.forwarders, without=name)
            self._added.pop(name, None)
            await self._swap(name, None)
            await self._forget(name)
            self._look_at_qos0()
        self._log.warning("forwarder.removed", forwarder=name)
        return True

    async def pause(self, name: str, *, paused: bool) -> bool:
        """Let a forwarder rest, or go on; it lasts through restarts. False if there is none."""
        async with self._lock:
            forwarder = self._forwarders.get(name)
            if forwarder is None:
                return False
            if paused:
                await self._keep(self._kept.forwarders, pauses=name)
            else:
                await self._keep(self._kept.forwarders, resumes=name)
            await self._swap(name, self._make(name, forwarder.settings))
            self._resumed = dict(self._kept.resumed)
        self._log.warning("forwarder.paused" if paused else "forwarder.resumed", forwarder=name)
        return True

    def running(self) -> Mapping[str, Forwarder]:
        """Those that this node runs, or would if they were not stopped; paused ones are not."""
        return {
            name: each
            for name, each in self._forwarders.items()
            if each.state not in (PAUSED, STANDBY)
        }

    # -- inside ----------------------------------------------------------------------------

    def _all(self) -> dict[str, ForwarderConfig]:
        return {**self._added, **self._configured}

    def _session(self, name: str) -> DurableSession:
        services = self._services
        return DurableSession(services, services.publish_path, name)

    def _make(self, name: str, settings: ForwarderConfig) -> Forwarder:
        opener = opener_of(name, settings)
        context = Context(
            name=name,
            origin=self._origin,
            core=self._services,
            publish_path=self._services.publish_path,
            session=self._session(name),
            counts=Counts(self._services.metrics, name),
            log=self._log.bind(forwarder=name),
        )
        return Forwarder(settings, context, opener)

    async def _begin(self, name: str, forwarder: Forwarder) -> None:
        await forwarder.look()
        if name in self._kept.paused:
            forwarder.state = PAUSED
        elif self._has_duty(name):
            forwarder.start()
        else:
            forwarder.state = STANDBY
        forwarder.tell()

    def _has_duty(self, name: str) -> bool:
        """Whether this node is to run a forwarder; without others it has every duty."""
        peers = self._services.peers
        return peers is None or peers.owns(f"forwarder {name}")

    async def _look_at_duty(self, name: str, forwarder: Forwarder) -> None:
        """Take up a forwarder whose node has gone, or let go of one that is another node's now."""
        if forwarder.state == STANDBY:
            await forwarder.look()  # the log waits for it here too, and whoever asks is told
        if forwarder.state == PAUSED or (forwarder.state != STANDBY) == self._has_duty(name):
            return
        async with self._lock:
            if self._forwarders.get(name) is forwarder:
                self._log.info("forwarder.duty", forwarder=name, has=self._has_duty(name))
                await self._swap(name, self._make(name, forwarder.settings))

    async def _swap(self, name: str, forwarder: Forwarder | None) -> None:
        """Put a forwarder in the place of another, which has ended before the new one begins."""
        before = self._forwarders.pop(name, None)
        if before is not None:
            await before.stop()
        if forwarder is None:
            Counts(self._services.metrics, name).forget()
            return
        self._forwarders[name] = forwarder
        if self._teller is not None:
            await self._begin(name, forwarder)

    async def _replace(self, name: str, forwarder: Forwarder | None) -> None:
        async with self._lock:
            await self._swap(name, forwarder)

    def _spawn(self, work: Any) -> None:
        self._services.scheduler.spawn(work, name="forwarders")

    @property
    def _kept(self) -> definitions.Definitions:
        return self._keeper.definitions

    async def _keep(
        self,
        forwarders: dict[str, dict[str, Any]],
        *,
        without: str = "",
        pauses: str = "",
        resumes: str = "",
    ) -> None:
        fresh = definitions.Definitions(
            {name: given for name, given in forwarders.items() if name != without},
            [name for name in self._kept.paused if name not in (without, pauses, resumes)],
            {name: at for name, at in self._kept.resumed.items() if name != without},
        )
        if pauses:
            fresh.paused.append(pauses)
        if resumes and self._services.peers is not None:
            fresh.resumed[resumes] = self._services.clock.wall_us()
        await self._keeper.keep(fresh)

    def _changed(self) -> None:
        """Another node may have changed what is kept."""
        if self._teller is not None:
            self._spawn(self._follow())

    async def _follow(self) -> None:
        """Have in force what is kept; nothing happens where it is."""
        async with self._lock:
            kept = self._kept
            for name in [each for each in self._added if each not in kept.forwarders]:
                del self._added[name]
                if name not in self._configured:
                    await self._swap(name, None)
                    await self._forget(name)
            for name, given in kept.forwarders.items():
                try:
                    settings = definitions.bind_settings(name, given)
                    if self._added.get(name) == settings:
                        continue
                    forwarder = self._make(name, settings)
                except ConfigError as error:
                    # Another release may know other settings.
                    self._log.error("forwarder.unusable", forwarder=name, error=error.message)
                    continue
                self._added[name] = settings
                if name not in self._configured:
                    await self._swap(name, forwarder)
            for name, forwarder in list(self._forwarders.items()):
                asked = kept.resumed.get(name, 0) > self._resumed.get(name, 0)
                if (forwarder.state == PAUSED) != (name in kept.paused) or (
                    asked and forwarder.state == STOPPED
                ):
                    await self._swap(name, self._make(name, forwarder.settings))
            self._resumed = dict(kept.resumed)
            self._look_at_qos0()

    async def _forget(self, name: str) -> None:
        """Delete the session of a forwarder that was removed, where it was run."""
        if self._has_duty(name):
            await self._session(name).discard()

    def _look_at_qos0(self) -> None:
        """Have the log record the messages of QoS 0 that somebody forwards."""
        wanted = [
            each for settings in self._all().values() if settings.qos0 for each in settings.filter
        ]
        self._services.publish_path.record_qos0 = (*self._record_qos0, *wanted)

    def _held(self) -> dict[str, int]:
        """Up to where the log need not be kept, for each forwarder that it waits for."""
        now_us = self._services.clock.wall_us()
        time_s = self._services.retention.config.time_s
        held: dict[str, int] = {}
        for name, forwarder in self._forwarders.items():
            hold_s = forwarder.settings.hold_s
            if hold_s and forwarder.position:
                # Offsets are times: what is older than it waits for is given up.
                given_up = now_us - (time_s + hold_s) * 1_000_000
                held[f"forwarder {name}"] = max(forwarder.position, given_up)
        return held

    async def _tell(self) -> None:
        while True:
            for forwarder in list(self._forwarders.values()):
                try:
                    forwarder.tell()
                except StorageError as error:
                    self._log.warning("forwarder.not_measured", error=error.message)
            if self._services.peers is not None:
                for name, forwarder in list(self._forwarders.items()):
                    await self._look_at_duty(name, forwarder)
            await asyncio.sleep(TELL_S)


def _naming_the_setting(error: ConfigError) -> ConfigError:
    """An error that is told without its path, in the words of ``definitions.bind_settings``."""
    text = f"{error.path}: {error.message}" if error.path else error.message
    return ConfigError(text, path=error.path, hint=error.hint)


def shown(settings: ForwarderConfig) -> dict[str, Any]:
    """Settings as people may see them, without secrets and what has its default."""
    defaults = type(settings)()
    row: dict[str, Any] = {"type": type_of(settings)}
    for name, shape in field_types(type(settings)).items():
        value = getattr(settings, name)
        if value != getattr(defaults, name):
            row[name] = REDACTED if shape.secret else msgspec.to_builtins(value)
    return row
