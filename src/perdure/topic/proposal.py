"""A topic structure that someone proposes for the next generation of a log.

The file that ``perdure pipeline learn`` writes and ``perdure storage rotate --proposal`` reads is
JSON; people may change it in between. Knows nothing of how it was found, and nothing of the trie.

Invariant: a ``Structure`` that ``check_structure`` let pass can be seeded, and leaves the log room
to learn more.
"""

from __future__ import annotations

from typing import Final

import msgspec

from perdure.errors import ConfigError, MqttError
from perdure.topic.names import validate_topic_filter

VERSION: Final = 1

NODES_MAX: Final = 8_192
"""Levels of all patterns together, each prefix counted once; half of what a log may learn."""

THRESHOLD_MAX: Final = 100_000
"""A level that has more values than this and still does not vary is none to plan for."""

THRESHOLDS_MAX: Final = 64
"""Levels with a threshold of their own."""

_LEVELS_MAX: Final = 1_000


class Structure(msgspec.Struct, frozen=True):
    """What a generation begins with.

    Attributes:
        thresholds: of ``StructureTrie``.
        patterns: topics with ``+`` where a level varies.
    """

    thresholds: tuple[int, ...]
    patterns: tuple[str, ...]


class ProposedPattern(msgspec.Struct, frozen=True):
    """One structure of a proposal.

    Attributes:
        pattern: with ``+`` where a level varies.
        messages: that were found in it.
        streams_before: streams of the current generation that share topics with it.
    """

    pattern: str
    messages: int
    streams_before: int


class Proposal(msgspec.Struct, frozen=True):
    """The file.

    Attributes:
        version: of the file.
        database: id of the database whose log it was learned from.
        through_offset: the log was read up to here.
        messages: that were read.
        thresholds: of ``StructureTrie``.
        structures: those with most messages first.
        tables: for an archive, names with their patterns.
    """

    version: int
    database: str
    through_offset: int
    messages: int
    thresholds: tuple[int, ...]
    structures: tuple[ProposedPattern, ...]
    tables: dict[str, str]

    @property
    def structure(self) -> Structure:
        """What a generation takes of it: the patterns that vary; others are learned as ever."""
        varying = [each.pattern for each in self.structures if "+" in each.pattern.split("/")]
        return Structure(self.thresholds, tuple(varying))


def parse_proposal(data: bytes) -> Proposal:
    """The proposal in a file.

    Raises:
        ConfigError: it cannot be used.
    """
    try:
        found = msgspec.json.decode(data, type=Proposal)
    except ValueError as error:
        raise ConfigError(
            f"this is no proposal: {error}",
            path="proposal",
            hint="perdure pipeline learn makes one",
        ) from error
    if found.version != VERSION:
        raise ConfigError(
            f"the proposal has version {found.version}; this release reads {VERSION}",
            path="proposal",
        )
    check_structure(found.structure)
    return found


def check_structure(structure: Structure) -> None:
    """Make sure that a structure can be seeded.

    Raises:
        ConfigError: it cannot.
    """
    thresholds = structure.thresholds
    if not 0 < len(thresholds) <= THRESHOLDS_MAX or not all(
        0 <= threshold <= THRESHOLD_MAX for threshold in thresholds
    ):
        raise ConfigError(
            f"thresholds: expected 1 to {THRESHOLDS_MAX} numbers from 0 to {THRESHOLD_MAX}",
            path="proposal",
        )
    nodes: set[tuple[str, ...]] = set()
    for pattern in structure.patterns:
        levels = tuple(pattern.split("/"))
        try:
            validate_topic_filter(pattern, levels_max=_LEVELS_MAX)
        except MqttError as error:
            raise ConfigError(f"pattern {pattern!r}: {error.message}", path="proposal") from error
        if levels[-1] == "#" or levels[0] == "$share":
            raise ConfigError(
                f"pattern {pattern!r}: a structure has + and plain levels only", path="proposal"
            )
        nodes.update(levels[:depth] for depth in range(1, len(levels) + 1))
        if len(nodes) > NODES_MAX:
            raise ConfigError(
                f"the patterns have more than {NODES_MAX} levels together",
                path="proposal",
                hint="let more levels vary",
            )
