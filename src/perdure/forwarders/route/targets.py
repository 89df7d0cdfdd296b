"""Who is to get what: applications and devices by their topic filters. Pure.

A filter's *signature* says which of its levels are wildcards. For each signature in use a topic has
one filter that could match it, which is looked up: the cost of a topic is that of the signatures,
and not of the filters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, final

import msgspec

from perdure.errors import ConfigError, MqttError
from perdure.topic.names import validate_topic_filter

LEVELS_MAX: Final = 128
"""Levels of a filter."""
TOPICS_MAX: Final = 100_000
"""Topics whose targets a task remembers."""

APPLICATION: Final = "a"
QUEUE: Final = "q"


@final
class Route(msgspec.Struct, frozen=True):
    """One filter of one target.

    Attributes:
        kind: ``APPLICATION`` or ``QUEUE``.
        target: name of the application's forwarder, or client identifier of the device.
        topic_filter: without ``$share``.
        qos: granted, 1 or 2.
    """

    kind: str
    target: str
    topic_filter: str
    qos: int = 2


@final
class Owed(NamedTuple):
    """What a topic's message is for one target.

    Attributes:
        key: kind and target.
        qos: granted; the highest of its filters.
    """

    key: str
    qos: int


def check_routes(routes: Iterable[Route]) -> list[Route]:
    """Routes that can be used.

    Raises:
        ConfigError: a filter or a QoS is none.
    """
    checked = list(routes)
    for each in checked:
        try:
            validate_topic_filter(each.topic_filter, levels_max=LEVELS_MAX)
        except MqttError as error:
            text = f"{each.target}: {each.topic_filter!r}: {error.message}"
            raise ConfigError(text, path="filter") from None
        if each.kind not in (APPLICATION, QUEUE) or each.qos not in (1, 2):
            raise ConfigError(f"{each.target}: QoS {each.qos} of {each.kind!r}", path="qos")
    return checked


@final
class Matcher:
    """Finds the targets of topics.

    Args:
        routes: all there are.
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        self._by_filter: dict[str, dict[str, int]] = {}
        signatures: set[tuple[str, ...]] = set()
        for each in routes:
            key = f"{each.kind}:{each.target}"
            granted = self._by_filter.setdefault(each.topic_filter, {})
            granted[key] = max(granted.get(key, 0), each.qos)
            levels = each.topic_filter.split("/")
            signatures.add(tuple(level if level in ("+", "#") else "" for level in levels))
        self._signatures = sorted(signatures)
        self._known: dict[str, tuple[Owed, ...]] = {}

    def match(self, topic: str) -> tuple[Owed, ...]:
        """The targets of a topic, each once, by their keys."""
        known = self._known.get(topic)
        if known is None:
            if len(self._known) >= TOPICS_MAX:
                self._known.clear()
            known = self._known[topic] = self._find(topic)
        return known

    def _find(self, topic: str) -> tuple[Owed, ...]:
        levels = topic.split("/")
        found: dict[str, int] = {}
        for signature in self._signatures:
            candidate = _candidate(signature, levels)
            for key, qos in self._by_filter.get(candidate, {}).items():
                found[key] = max(found.get(key, 0), qos)
        return tuple(Owed(key, found[key]) for key in sorted(found))


def _candidate(signature: tuple[str, ...], levels: list[str]) -> str:
    """The one filter of a signature that matches a topic; empty = none can."""
    count = len(signature)
    if signature[-1] == "#":
        if len(levels) < count - 1:  # `a/#` matches `a` too [MQTT-4.7.1-2]
            return ""
    elif len(levels) != count:
        return ""
    if signature[0] and levels[0].startswith("$"):
        return ""  # [MQTT-4.7.2-1]
    return "/".join([mark or levels[at] for at, mark in enumerate(signature)])
