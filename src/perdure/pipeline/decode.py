"""Pages of raw rows become Arrow columns, whole columns at a time.

The bytes are drawn in ``storage.codec`` and ``layout_v1``; this module reads the same
ones with numpy, because a decoded object for each message costs more than all the rest of a read.
Only the columns that are asked for are made. Knows no files, no filters and no Spark.

Invariant: row by row the columns are what ``codec.decode_message`` gives; bytes of a later
version raise ``FormatTooNew``, others that do not decode ``StorageCorrupt``.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perdure.errors import FormatTooNew, MqttError, StorageCorrupt
from perdure.mqtt.encode import properties_from_forward
from perdure.pipeline.arrays import every, moments, numbers, strings, text
from perdure.pipeline.lying_page import LyingPage
from perdure.pipeline.schema import BY_NAME, PROPERTY_COLUMNS, arrow_schema
from perdure.storage.rocksdb.page import Page

_VERSION: Final = 1
_PLAIN: Final = 12
_EXTENDED: Final = 24
STREAM_BYTES: Final = 8
KEY_HEAD_BYTES: Final = 16
"""Of a data key: its stream, and its stream and offset; its tokens follow."""
_QOS: Final = 0x03
_RETAIN: Final = 0x04
_HAS_EXTENSION: Final = 0x08

PARTS: Final = 6
_TOKENS, _VALUE, _PUBLISHER, _PROPERTIES, _PAYLOAD = range(1, PARTS)
"""Parts of a row after the head of its key."""

_RUNS_PER_ROW_MAX: Final = 1 / 32
"""Streams in a page beyond which topics are made one by one."""


class Names(NamedTuple):
    """What a generation knows of its topics.

    Attributes:
        generation: its number.
        topic: the topic of a data key.
        pattern: the structure of a stream.
        structure: what is said to be the structure of all, where nothing was learned; or empty.
    """

    generation: int
    topic: Callable[[bytes], str]
    pattern: Callable[[int], str]
    structure: str = ""


class Heads(NamedTuple):
    """The fixed part of the values of a page, a numpy array for each field.

    ``bounds`` has ``PARTS`` elements for each row, and an end: where the key begins, its tokens,
    the value, its publisher, its properties and its payload.
    """

    flags: Any
    published_at: Any
    expires_at: Any
    bounds: Any


Keep: TypeAlias = Callable[[Page, Names, Heads, list[int]], list[int]]
"""Which of some rows to keep, given their page, its names, and the heads of its values."""


def decode_page(
    page: Page,
    columns: Sequence[str],
    names: Names,
    *,
    published_from: int | None = None,
    published_until: int | None = None,
    keep: Keep | None = None,
) -> Any:
    """The rows of a page as a record batch.

    Args:
        page: rows of one generation.
        columns: names, in the order of the batch.
        names: of that generation.
        published_from, published_until: rows published before or after are left out.
        keep: which of the others are in.
    """
    if published_from is not None or published_until is not None or keep is not None:
        page = _picked(page, names, published_from, published_until, keep)
    bounds = _bounds(page)
    made = _key_columns(page, bounds, columns, names)
    needs_values = set(columns) - {"topic", "offset", "generation", "structure"}
    if needs_values:
        made |= _value_columns(page, read_heads(page, bounds), needs_values)
    schema = arrow_schema(columns)
    return pa.RecordBatch.from_arrays([made[name] for name in columns], schema=schema)


def _picked(
    page: Page, names: Names, first: int | None, last: int | None, keep: Keep | None
) -> Page:
    """A page without the rows that conditions leave out."""
    page = page.plain()
    bounds = _bounds(page)
    heads = read_heads(page, bounds)
    kept = _published_between(heads, first, last)
    if keep is not None:
        rows: Any = np.arange(len(page)) if kept is None else np.flatnonzero(kept)
        chosen: Any = np.array(keep(page, names, heads, rows.tolist()), dtype=np.int64)
    elif kept is None:
        return page
    else:
        chosen = np.flatnonzero(kept)
    if len(chosen) == len(page):
        return page
    rows = _slots(page, np.append(bounds[0:-1:2], bounds[-1])).take(numbers(chosen, pa.int64()))
    lengths: array[int] = array("i")
    lengths.frombytes(_lengths(page).reshape(-1, 2)[chosen].tobytes())
    data = rows.buffers()[2]
    return Page(data.to_pybytes() if data is not None else b"", lengths)


def _published_between(heads: Heads, first: int | None, last: int | None) -> Any:
    """Which rows were published in a range; None = all of them."""
    kept: Any = np.ones(len(heads.flags), dtype=bool)
    if first is not None:
        kept &= heads.published_at >= first
    if last is not None:
        kept &= heads.published_at <= last
    return None if kept.all() else kept


# -- keys ----------------------------------------------------------------------------------


def _key_columns(page: Page, bounds: Any, columns: Sequence[str], names: Names) -> dict[str, Any]:
    count = len(page)
    made: dict[str, Any] = {}
    if "offset" in columns:
        made["offset"] = numbers(_key_words(page, bounds, STREAM_BYTES), pa.int64())
    if "generation" in columns:
        generations: Any = np.full(count, names.generation, dtype=np.int32)
        made["generation"] = numbers(generations, pa.int32())
    if "topic" in columns or "structure" in columns:
        streams = _key_words(page, bounds, 0)
        changes: Any = np.flatnonzero(streams[1:] != streams[:-1]) + 1
        runs = [0, *changes.tolist(), count] if count else [0]
        if "structure" in columns:
            made["structure"] = _patterns(streams, runs, names)
        if "topic" in columns:
            made["topic"] = _topics(page, bounds, streams, runs, names)
    return made


def _key_words(page: Page, bounds: Any, at: int) -> Any:
    """The streams of keys, or, behind them, their offsets."""
    if isinstance(page, LyingPage):
        return page.at.offsets if at else page.at.streams
    starts = bounds[0:-1:2]
    if len(page) and int((bounds[1::2] - starts).min()) < KEY_HEAD_BYTES:
        raise StorageCorrupt("a data key is cut short")
    return _integers(page, starts + at)


def _patterns(streams: Any, runs: list[int], names: Names) -> Any:
    patterns = strings(
        [names.structure or names.pattern(int(streams[start])) for start in runs[:-1]]
    )
    indices: Any = np.repeat(np.arange(len(runs) - 1, dtype=np.int64), np.diff(runs))
    return patterns.take(numbers(indices, pa.int64()))


def _topics(page: Page, bounds: Any, streams: Any, runs: list[int], names: Names) -> Any:
    """The topics of a page: for each run of one stream, its pattern with the tokens put in."""
    count = len(page)
    if len(runs) - 1 > max(1, count * _RUNS_PER_ROW_MAX):
        known: dict[bytes, str] = {}
        topics = []
        for key in page.keys:
            part = key[:STREAM_BYTES] + key[KEY_HEAD_BYTES:]
            topic = known.get(part)
            if topic is None:
                topic = known[part] = names.topic(key)
            topics.append(topic)
        return strings(topics)
    tokens = page.tokens() if isinstance(page, LyingPage) else _tokens(page, bounds)
    made = []
    for start, stop in pairwise(runs):
        levels = names.pattern(int(streams[start])).split("/")
        varying = levels.count("+")
        key = _key(page, bounds, start)
        head = key[:KEY_HEAD_BYTES]
        if varying == 0:
            topic = strings([names.topic(key)])[0]
            made.append(pa.repeat(topic, stop - start))
        elif varying == 1:
            place = levels.index("+")
            before = "".join(f"{level}/" for level in levels[:place])
            after = "".join(f"/{level}" for level in levels[place + 1 :])
            token = text(tokens[start:stop], "topic")
            around = strings([before, after, ""])
            made.append(pc.binary_join_element_wise(around[0], token, around[1], around[2]))
        else:
            coded = tokens[start:stop].dictionary_encode()
            topics = [names.topic(head + part) for part in coded.dictionary.to_pylist()]
            made.append(strings(topics).take(coded.indices))
    return pa.concat_arrays(made) if made else pa.nulls(0, pa.string())


def _tokens(page: Page, bounds: Any) -> Any:
    """What keys have behind their heads."""
    count = len(page)
    # Three elements for each row: the head of its key, its tokens, and its value.
    places: Any = np.empty(3 * count + 1, dtype=np.int32)
    places[0:-1:3] = bounds[0:-1:2]
    places[1::3] = bounds[0:-1:2] + KEY_HEAD_BYTES
    places[2::3] = bounds[1::2]
    places[-1] = bounds[-1]
    return _slots(page, places).take(every(1, 3 * count, 3))


def _key(page: Page, bounds: Any, row: int) -> bytes:
    if isinstance(page, LyingPage):
        return page.key(row)
    return page.data[int(bounds[2 * row]) : int(bounds[2 * row + 1])]


# -- values --------------------------------------------------------------------------------


def read_heads(page: Page, bounds: Any) -> Heads:
    """The fixed parts of the values of a page.

    Args:
        page: rows.
        bounds: where its keys and values begin, and the end.
    """
    count = len(page)
    starts, ends = bounds[1::2], bounds[2::2]
    sizes = ends - starts
    if count and int(sizes.min()) < _PLAIN:
        raise StorageCorrupt("a message is cut short")
    data: Any = np.frombuffer(_memory(page), dtype=np.uint8)
    versions = data[starts]
    newest = int(versions.max()) if count else _VERSION
    if newest > _VERSION:
        raise FormatTooNew(f"message record has version {newest}; this release reads {_VERSION}")
    if count and int(versions.min()) < _VERSION:
        raise StorageCorrupt("message record has no version")
    flags = data[starts + 1]
    published_at = _integers(page, starts + 2)
    publisher = (data[starts + 10].astype(np.int32) << 8) | data[starts + 11]
    head_size: Any = np.full(count, _PLAIN, dtype=np.int32)
    expires_at: Any = np.zeros(count, dtype=np.int64)
    properties: Any = np.zeros(count, dtype=np.int64)
    extended = np.flatnonzero(flags & _HAS_EXTENSION)
    if len(extended):
        if int(sizes[extended].min()) < _EXTENDED:
            raise StorageCorrupt("a message is cut short")
        expires_at[extended] = _integers(page, starts[extended] + _PLAIN)
        # The length, and the four bytes before it, which are not its own.
        properties[extended] = _integers(page, starts[extended] + _PLAIN + 4) & 0xFFFFFFFF
        head_size[extended] = _EXTENDED
    if bool((head_size + publisher + properties > sizes).any()):
        raise StorageCorrupt("a message is cut short")
    parts: Any = np.empty(PARTS * count + 1, dtype=np.int32)
    parts[0:-1:PARTS] = bounds[0:-1:2]
    parts[_TOKENS::PARTS] = bounds[0:-1:2] + KEY_HEAD_BYTES
    parts[_VALUE::PARTS] = starts
    parts[_PUBLISHER::PARTS] = starts + head_size
    parts[_PROPERTIES::PARTS] = parts[_PUBLISHER::PARTS] + publisher
    parts[_PAYLOAD::PARTS] = parts[_PROPERTIES::PARTS] + properties.astype(np.int32)
    parts[-1] = bounds[-1]
    return Heads(flags, published_at, expires_at, parts)


def _value_columns(page: Page, heads: Heads, wanted: set[str]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if "payload" in wanted:
        made["payload"] = _part(page, heads, _PAYLOAD)
    if "client_id" in wanted:
        made["client_id"] = text(_part(page, heads, _PUBLISHER), "client id")
    if "published_at" in wanted:
        made["published_at"] = moments(heads.published_at, None)
    if "expires_at" in wanted:
        made["expires_at"] = moments(heads.expires_at, heads.expires_at == 0)
    if "qos" in wanted:
        made["qos"] = numbers((heads.flags & _QOS).astype(np.int8), pa.int8())
    if "retain" in wanted:
        retained = pa.py_buffer(np.packbits((heads.flags & _RETAIN) != 0, bitorder="little"))
        made["retain"] = pa.Array.from_buffers(pa.bool_(), len(heads.flags), [None, retained])
    properties = wanted & PROPERTY_COLUMNS
    if properties:
        made |= _property_columns(page, heads, properties)
    return made


def _part(page: Page, heads: Heads, part: int) -> Any:
    """One of the parts of each row."""
    return _slots(page, heads.bounds).take(every(part, len(heads.bounds) - 1, PARTS))


def _property_columns(page: Page, heads: Heads, wanted: set[str]) -> dict[str, Any]:
    """MQTT 5.0 properties; each distinct set of them is decoded once."""
    count = len(heads.flags)
    sizes = heads.bounds[_PAYLOAD::PARTS] - heads.bounds[_PROPERTIES::PARTS]
    if not sizes.any():
        return {name: pa.nulls(count, BY_NAME[name].type) for name in wanted}
    coded = _part(page, heads, _PROPERTIES).dictionary_encode()
    rows: dict[str, list[object]] = {name: [] for name in wanted}
    for raw in coded.dictionary.to_pylist():
        for name, value in _properties(raw).items():
            if name in rows:
                rows[name].append(value)
    return {
        name: pa.array(values, BY_NAME[name].type).take(coded.indices)
        for name, values in rows.items()
    }


def _properties(raw: bytes) -> dict[str, object]:
    try:
        found = properties_from_forward(raw)
    except MqttError as error:
        raise StorageCorrupt(f"the properties of a message do not decode: {error}") from error
    pairs = [{"name": name, "value": value} for name, value in found.user_properties]
    return {
        "payload_format": found.payload_format_indicator,
        "content_type": found.content_type,
        "response_topic": found.response_topic,
        "correlation_data": found.correlation_data,
        "user_properties": pairs or None,
    }


# -- pages ---------------------------------------------------------------------------------


def _memory(page: Page) -> Any:
    """What a page's bounds are in."""
    return page.memory if isinstance(page, LyingPage) else page.data


def _lengths(page: Page) -> Any:
    return np.frombuffer(page.lengths, dtype=np.int32)


def _bounds(page: Page) -> Any:
    """Where keys and values begin, in turn, and the end."""
    if isinstance(page, LyingPage):
        return page.bounds()
    bounds: Any = np.zeros(len(page.lengths) + 1, dtype=np.int64)
    np.cumsum(_lengths(page), out=bounds[1:])
    assert int(bounds[-1]) < 2**31  # a page is far smaller
    return bounds.astype(np.int32)


def _slots(page: Page, bounds: Any) -> Any:
    """The bytes of a page as an Arrow array, cut at bounds."""
    return pa.Array.from_buffers(
        pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(_memory(page))]
    )


def _integers(page: Page, places: Any) -> Any:
    """The 8 bytes at some places as numbers: a read of one word each, wherever it begins."""
    if not len(places):
        return np.empty(0, dtype=np.int64)
    memory = _memory(page)
    words: Any = np.ndarray(len(memory) - 7, dtype=">i8", buffer=memory, strides=(1,))
    return words[places].astype(np.int64)
