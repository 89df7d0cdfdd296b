"""Which messages a forwarder forwards. Pure: the same settings select the same messages."""

from __future__ import annotations

from typing import Final, final

from perdure.config.schema import ForwarderConfig
from perdure.content import ContentFilter, parse_filter
from perdure.errors import ConfigError, PerdureError
from perdure.model import Message
from perdure.topic.names import validate_topic_filter

LEVELS_MAX: Final = 128
"""Levels of a forwarder's topic filter."""


def check_filters(filters: tuple[str, ...], setting: str) -> tuple[str, ...]:
    """Topic filters that can be used.

    Raises:
        ConfigError: one cannot, or there is none.
    """
    if not filters:
        raise ConfigError("needs one topic filter or more", path=setting)
    for each in filters:
        if each.startswith("$share/"):
            raise ConfigError(f"{each!r}: a forwarder needs no $share", path=setting)
        try:
            validate_topic_filter(each, levels_max=LEVELS_MAX)
        except PerdureError as error:
            raise ConfigError(f"{each!r}: {error.message}", path=setting) from None
    return filters


@final
class Selection:
    """The topic filters and the content filter of a forwarder.

    Args:
        settings: of the forwarder.
        setting: its path, for errors.

    Raises:
        ConfigError: a filter cannot be used.
    """

    __slots__ = ("_where", "filters")

    def __init__(self, settings: ForwarderConfig, *, setting: str) -> None:
        self.filters: tuple[str, ...] = check_filters(settings.filter, f"{setting}.filter")
        self._where: ContentFilter | None = None
        if settings.where:
            try:
                self._where = parse_filter(settings.where)
            except (PerdureError, ValueError) as error:
                raise ConfigError(str(error), path=f"{setting}.where") from None

    def takes(self, message: Message) -> bool:
        """Whether a message that matches the topic filters is forwarded."""
        return self._where is None or self._where.fulfilled_by(message)
