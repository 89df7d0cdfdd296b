"""Where forwarders are kept that were added, and which are paused: a file, or a cluster's log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, final

import msgspec

from perdure.forwarders.definitions import Definitions, load, save
from perdure.model.reserved import FORWARDERS_PREFIX
from perdure.observe.logs import get_logger

if TYPE_CHECKING:
    from perdure.broker.cluster.notices import Notices


log = get_logger("forwarders")


class Keeper(Protocol):
    """Keeps them.

    Attributes:
        definitions: as they are kept.
        on_changed: called when somebody else may have changed them.
    """

    definitions: Definitions
    on_changed: Callable[[], None] | None

    async def keep(self, fresh: Definitions) -> None:
        """Keep others from now on; they are safe when this returns.

        Raises:
            StorageUnavailable: they cannot be kept.
        """
        ...


@final
class FileKeeper:
    """One file.

    Args:
        path: of the file; None = they are forgotten with the process.

    Raises:
        ConfigError: it cannot be read.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.definitions = load(path)
        self.on_changed: Callable[[], None] | None = None

    async def keep(self, fresh: Definitions) -> None:
        """See ``Keeper``."""
        await asyncio.to_thread(save, self._path, fresh)
        self.definitions = fresh


class _Kept(msgspec.Struct, omit_defaults=True):
    """What the log has of one forwarder.

    Attributes:
        settings: as they were given; None = it is in the configuration of the nodes.
        paused: it rests.
        resumed_us: wall time at which it was asked to go on; 0 = never.
    """

    settings: dict[str, Any] | None = None
    paused: bool = False
    resumed_us: int = 0


@final
class ClusterKeeper:
    """The log of a cluster: all nodes keep the same ones.

    Args:
        notices: the log.
    """

    def __init__(self, notices: Notices) -> None:
        self._notices = notices
        self._kept: dict[str, bytes] = {}
        self.definitions = Definitions()
        self.on_changed: Callable[[], None] | None = None
        notices.listeners[FORWARDERS_PREFIX] = self

    async def keep(self, fresh: Definitions) -> None:
        """See ``Keeper``."""
        wanted = {
            name: msgspec.json.encode(
                _Kept(fresh.forwarders.get(name), name in fresh.paused, fresh.resumed.get(name, 0))
            )
            for name in {*fresh.forwarders, *fresh.paused, *fresh.resumed}
        }
        changes = dict.fromkeys(self._kept.keys() - wanted, b"")
        changes.update(
            (name, value) for name, value in wanted.items() if self._kept.get(name) != value
        )
        if changes:
            await self._notices.change(FORWARDERS_PREFIX, changes)

    def heard(self, name: str, value: bytes) -> None:
        """The log has a forwarder, or has it no more."""
        if value:
            self._kept[name] = value
        else:
            self._kept.pop(name, None)

    def settle(self) -> None:
        """Have what was heard in force."""
        found = Definitions({}, [], {})
        for name, value in self._kept.items():
            try:
                kept = msgspec.json.decode(value, type=_Kept)
            except ValueError as error:
                log.error("forwarder.unknown", forwarder=name, reason=str(error))
                continue
            if kept.settings is not None:
                found.forwarders[name] = kept.settings
            if kept.paused:
                found.paused.append(name)
            if kept.resumed_us:
                found.resumed[name] = kept.resumed_us
        self.definitions = found
        if self.on_changed is not None:
            self.on_changed()
