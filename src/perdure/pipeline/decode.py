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
from perdure.pipeline.arrays import every, moments, numbers, slots, strings, text, words
from perdure.pipeline.block_page import KEY_HEAD_BYTES
from perdure.pipeline.page_view import STREAM_BYTES, PageView, PlainView, view_of
from perdure.pipeline.schema import BY_NAME, PROPERTY_COLUMNS, arrow_schema
from perdure.storage.rocksdb.page import Page

_VERSION: Final = 1
_PLAIN: Final = 12
_EXTENDED: Final = 24
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
    view = view_of(page)
    made = _key_columns(view, columns, names)
    needs_values = set(columns) - {"topic", "offset", "generation", "structure"}
    if needs_values:
        made |= _value_columns(view, read_heads(view), needs_values)
    schema = arrow_schema(columns)
    return pa.RecordBatch.from_arrays([made[name] for name in columns], schema=schema)


def _picked(
    page: Page, names: Names, first: int | None, last: int | None, keep: Keep | None
) -> Page:
    """A page without the rows that conditions leave out."""
    page = page.plain()
    view = PlainView(page)
    heads, bounds = read_heads(view), view.bounds
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
    every_row = slots(page.data, np.append(bounds[0:-1:2], bounds[-1]))
    rows = every_row.take(numbers(chosen, pa.int64()))
    lengths: array[int] = array("i")
    lengths.frombytes(view.lengths.reshape(-1, 2)[chosen].tobytes())
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


def _key_columns(view: PageView, columns: Sequence[str], names: Names) -> dict[str, Any]:
    count = len(view)
    made: dict[str, Any] = {}
    if "offset" in columns:
        made["offset"] = numbers(view.offsets, pa.int64())
    if "generation" in columns:
        generations: Any = np.full(count, names.generation, dtype=np.int32)
        made["generation"] = numbers(generations, pa.int32())
    if "topic" in columns or "structure" in columns:
        streams = view.streams
        changes: Any = np.flatnonzero(streams[1:] != streams[:-1]) + 1
        runs = [0, *changes.tolist(), count] if count else [0]
        if "structure" in columns:
            made["structure"] = _patterns(streams, runs, names)
        if "topic" in columns:
            made["topic"] = _topics(view, streams, runs, names)
    return made


def _patterns(streams: Any, runs: list[int], names: Names) -> Any:
    patterns = strings(
        [names.structure or names.pattern(int(streams[start])) for start in runs[:-1]]
    )
    indices: Any = np.repeat(np.arange(len(runs) - 1, dtype=np.int64), np.diff(runs))
    return patterns.take(numbers(indices, pa.int64()))


def _topics(view: PageView, streams: Any, runs: list[int], names: Names) -> Any:
    """The topics of a page: for each run of one stream, its pattern with the tokens put in."""
    count = len(view)
    if len(runs) - 1 > max(1, count * _RUNS_PER_ROW_MAX):
        known: dict[bytes, str] = {}
        topics = []
        for key in view.keys:
            part = key[:STREAM_BYTES] + key[KEY_HEAD_BYTES:]
            topic = known.get(part)
            if topic is None:
                topic = known[part] = names.topic(key)
            topics.append(topic)
        return strings(topics)
    tokens = view.tokens()
    made = []
    for start, stop in pairwise(runs):
        levels = names.pattern(int(streams[start])).split("/")
        varying = levels.count("+")
        key = view.key(start)
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


# -- values --------------------------------------------------------------------------------


def read_heads(view: PageView) -> Heads:
    """The fixed parts of the values of a page."""
    count, bounds, memory = len(view), view.bounds, view.memory
    starts, ends = bounds[1::2], bounds[2::2]
    sizes = ends - starts
    if count and int(sizes.min()) < _PLAIN:
        raise StorageCorrupt("a message is cut short")
    data: Any = np.frombuffer(memory, dtype=np.uint8)
    versions = data[starts]
    newest = int(versions.max()) if count else _VERSION
    if newest > _VERSION:
        raise FormatTooNew(f"message record has version {newest}; this release reads {_VERSION}")
    if count and int(versions.min()) < _VERSION:
        raise StorageCorrupt("message record has no version")
    flags = data[starts + 1]
    published_at = words(memory, starts + 2, ">i8")
    publisher = (data[starts + 10].astype(np.int32) << 8) | data[starts + 11]
    head_size: Any = np.full(count, _PLAIN, dtype=np.int32)
    expires_at: Any = np.zeros(count, dtype=np.int64)
    properties: Any = np.zeros(count, dtype=np.int64)
    extended = np.flatnonzero(flags & _HAS_EXTENSION)
    if len(extended):
        if int(sizes[extended].min()) < _EXTENDED:
            raise StorageCorrupt("a message is cut short")
        expires_at[extended] = words(memory, starts[extended] + _PLAIN, ">i8")
        # The length, and the four bytes before it, which are not its own.
        properties[extended] = words(memory, starts[extended] + _PLAIN + 4, ">i8") & 0xFFFFFFFF
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


def _value_columns(view: PageView, heads: Heads, wanted: set[str]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if "payload" in wanted:
        made["payload"] = _part(view, heads, _PAYLOAD)
    if "client_id" in wanted:
        made["client_id"] = text(_part(view, heads, _PUBLISHER), "client id")
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
        made |= _property_columns(view, heads, properties)
    return made


def _part(view: PageView, heads: Heads, part: int) -> Any:
    """One of the parts of each row."""
    return slots(view.memory, heads.bounds).take(every(part, len(heads.bounds) - 1, PARTS))


def _property_columns(view: PageView, heads: Heads, wanted: set[str]) -> dict[str, Any]:
    """MQTT 5.0 properties; each distinct set of them is decoded once."""
    count = len(heads.flags)
    sizes = heads.bounds[_PAYLOAD::PARTS] - heads.bounds[_PROPERTIES::PARTS]
    if not sizes.any():
        return {name: pa.nulls(count, BY_NAME[name].type) for name in wanted}
    coded = _part(view, heads, _PROPERTIES).dictionary_encode()
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
