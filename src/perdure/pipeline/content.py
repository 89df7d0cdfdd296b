"""A content filter over pages of raw rows: the broker's own predicate, one payload at a time.

Knows no files and no Spark. Only rows that fulfil the filter are decoded into columns.
"""

from __future__ import annotations

from typing import Any, Final, final

from perdure.content import parse_filter
from perdure.content.document import Content
from perdure.errors import MqttError, StorageCorrupt
from perdure.mqtt.encode import properties_from_forward
from perdure.pipeline.block_page import KEY_HEAD_BYTES
from perdure.pipeline.decode import PARTS, Heads, Names
from perdure.pipeline.options import check_where
from perdure.pipeline.page_view import STREAM_BYTES
from perdure.storage.rocksdb.page import Page

_KNOWN_MAX: Final = 4_096
"""Distinct sets of properties, and topics, that are remembered."""

Said = tuple[tuple[tuple[str, str], ...], str]
"""User properties and content type."""


@final
class ContentKernel:
    """Which rows fulfil a filter; a ``decode.Keep``.

    Args:
        text: the filter.

    Raises:
        ConfigError: it is none.
    """

    def __init__(self, text: str) -> None:
        self._filter = parse_filter(check_where(text))
        self._known: dict[bytes, Said] = {}
        self._topics: dict[tuple[int, bytes], str] = {}

    def __call__(self, page: Page, names: Names, heads: Heads, rows: list[int]) -> list[int]:
        """Those of some rows that fulfil it."""
        data, bounds = page.data, heads.bounds.tolist()
        holds = self._filter.holds_for
        return [
            row
            for row in rows
            if holds(self._seen(data, bounds[row * PARTS : row * PARTS + PARTS + 1], names))
        ]

    def _seen(self, data: bytes, bounds: list[int], names: Names) -> Content:
        key, _, value, _, properties, payload, end = bounds
        return self._content(
            data[payload:end], data[properties:payload], self._topic(data[key:value], names)
        )

    def _content(self, payload: bytes, raw: bytes, topic: str) -> Content:
        if not raw:
            return Content(payload, topic=topic)
        pairs, content_type = self._said(raw)
        return Content(payload, pairs, content_type=content_type, topic=topic)

    def _topic(self, key: bytes, names: Names) -> str:
        part = (names.generation, key[:STREAM_BYTES] + key[KEY_HEAD_BYTES:])
        found = self._topics.get(part)
        if found is None:
            if len(self._topics) >= _KNOWN_MAX:
                self._topics.clear()
            found = self._topics[part] = names.topic(key)
        return found

    def _said(self, raw: bytes) -> Said:
        found = self._known.get(raw)
        if found is None:
            try:
                properties = properties_from_forward(raw)
                found = (tuple(properties.user_properties), properties.content_type or "")
            except MqttError as error:
                raise StorageCorrupt(
                    f"the properties of a message do not decode: {error}"
                ) from error
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[raw] = found
        return found


def content_of_row(
    payload: bytes, content_type: str | None, properties: Any, topic: str
) -> Content:
    """What filters see of a row of a table.

    Args:
        payload, content_type, topic: of their columns.
        properties: user properties, each with ``name`` and ``value``; None = none.
    """
    pairs = tuple((each["name"], each["value"]) for each in properties or ())
    return Content(payload, pairs, content_type=content_type or "", topic=topic)
