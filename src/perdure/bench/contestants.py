"""Who takes turns in a comparison: other brokers, or Perdure with something changed.

A variation is written as ``qos=2`` or ``offline=100000,version=5``: settings of the run by their
names, ``build=pure`` for the same Perdure without its compiled modules, and ``program=PATH`` for
another one. What it does not name is as in the comparison.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, final

import msgspec

from perdure.bench.peer import Peer, StartedPeer
from perdure.bench.peers import PEERS
from perdure.bench.settings import Settings
from perdure.errors import UsageError

_FIXED: Final = ("scenario", "seed")
"""All contestants share the scenario, and the names of clients and topics."""
_BUILDS: Final[Mapping[str, Mapping[str, str]]] = {
    "installed": {},
    "pure": {"PERDURE_PURE_PYTHON": "1"},
}


@final
class Contestant:
    """One who takes turns.

    Args:
        peer: a kind of broker.
        settings: what it is asked to do.
        name: in tables; empty = the peer's.
        program: executable, instead of the one that is found.
        environment: variables besides those that the peer wants.
    """

    __slots__ = ("environment", "name", "peer", "program", "settings")

    def __init__(
        self,
        peer: Peer,
        settings: Settings,
        *,
        name: str = "",
        program: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.peer = peer
        self.settings = settings
        self.name = name or peer.name
        self.program = program
        self.environment = dict(environment or {})

    def prepare(self, directory: Path) -> StartedPeer:
        """Its broker with an empty directory, not yet started.

        Raises:
            BenchError: it is not installed.
        """
        started = self.peer.prepare(directory, program=self.program, environment=self.environment)
        started.broker = msgspec.structs.replace(started.broker, name=self.name)
        return started


def vary(text: str, settings: Settings, *, program: str | None = None) -> Contestant:
    """Perdure with something changed.

    Args:
        text: ``name=value``, several separated by commas.
        settings: of the comparison.
        program: the ``perdure`` of the comparison.

    Raises:
        UsageError: there is no such name, or not such a value of it.
    """
    changes: dict[str, Any] = {}
    environment: Mapping[str, str] = {}
    types = {field.name: field.type for field in msgspec.structs.fields(Settings)}
    for part in text.split(","):
        name, separator, value = part.strip().partition("=")
        if not separator:
            raise UsageError(f"{part!r} is not name=value")
        if name == "program":
            program = value
        elif name == "build":
            if value not in _BUILDS:
                raise UsageError(f"build is one of {', '.join(_BUILDS)}")
            environment = _BUILDS[value]
        elif name in types and name not in _FIXED:
            try:
                changes[name] = msgspec.convert(value, types[name], strict=False)
            except msgspec.ValidationError as error:
                raise UsageError(f"{name}: {error}") from error
        else:
            names = sorted({*types, "build", "program"} - {*_FIXED})
            raise UsageError(f"{name!r} cannot vary; there are {', '.join(names)}")
    return Contestant(
        PEERS["perdure"],
        msgspec.structs.replace(settings, **changes),
        name=f"perdure {text}",
        program=program,
        environment=environment,
    )
