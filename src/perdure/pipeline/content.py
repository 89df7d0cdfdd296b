"""A content filter over pages of raw rows: the broker's own predicate, one payload at a time.

Knows no files and no Spark. Only rows that fulfil the filter are decoded into columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

from perdure.content import parse_filter
from perdure.errors import MqttError, StorageCorrupt
from perdure.mqtt.encode import properties_from_forward
from perdure.pipeline.decode import Heads
from perdure.pipeline.options import check_where

_KNOWN_MAX: Final = 4_096
"""Distinct sets of properties that are remembered."""

Pairs = tuple[tuple[str, str], ...]


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
        self._known: dict[bytes, Pairs] = {}

    def __call__(self, values: Sequence[bytes], heads: Heads, rows: list[int]) -> list[int]:
        """Those of some rows that fulfil it."""
        starts = heads.bounds[0:-1:4]
        payloads = (heads.bounds[3::4] - starts).tolist()
        holds = self._filter.holds
        if not self._filter.uses_properties:
            return [row for row in rows if holds(values[row][payloads[row] :])]
        properties: Any = (heads.bounds[2::4] - starts).tolist()
        return [
            row
            for row in rows
            if holds(
                values[row][payloads[row] :],
                self._pairs(values[row][properties[row] : payloads[row]]),
            )
        ]

    def _pairs(self, raw: bytes) -> Pairs:
        found = self._known.get(raw)
        if found is None:
            try:
                found = tuple(properties_from_forward(raw).user_properties) if raw else ()
            except MqttError as error:
                raise StorageCorrupt(
                    f"the properties of a message do not decode: {error}"
                ) from error
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[raw] = found
        return found
