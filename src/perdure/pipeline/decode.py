"""Pages of raw rows become Arrow columns, whole columns at a time.

The bytes are drawn in ``storage.codec`` and ``layout_v1``; this module reads the same
ones with numpy, because a decoded object for each message costs more than all the rest of a read.
Only the columns that are asked for are made. Knows no files, no filters and no Spark.

Arrays are made from buffers: ``pa.array`` and ``pa.scalar`` import pandas where that is installed,
which costs a fresh worker most of a second.

Invariant: row by row the columns are what ``codec.decode_message`` gives; bytes of a later
version raise ``FormatTooNew``, others that do not decode ``StorageCorrupt``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perdure.errors import FormatTooNew, MqttError, StorageCorrupt
from perdure.mqtt.encode import properties_from_forward
from perdure.pipeline.schema import BY_NAME, PROPERTY_COLUMNS, TIMESTAMP, arrow_schema
from perdure.storage.rocksdb.bulk import Page

_VERSION: Final = 1
_PLAIN: Final = 12
_EXTENDED: Final = 24
STREAM_BYTES: Final = 8
KEY_HEAD_BYTES: Final = 16
"""Of a data key: its stream, and its stream and offset; its tokens follow."""
_QOS: Final = 0x03
_RETAIN: Final = 0x04
_HAS_EXTENSION: Final = 0x08

_RUNS_PER_ROW_MAX: Final = 1 / 32
"""Streams in a page beyond which topics are made one by one."""


class Names(NamedTuple):
    """What a generation knows of its topics.

    Attributes:
        generation: its number.
        topic: the topic of a data key.
        pattern: the structure of a stream.
    """

    generation: int
    topic: Callable[[bytes], str]
    pattern: Callable[[int], str]


class Heads(NamedTuple):
    """The fixed part of the values of a page, a numpy array for each field."""

    flags: Any
    published_at: Any
    expires_at: Any
    values: Any
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
    keys = _binary(page.keys)
    heads = None
    needs_values = set(columns) - {"topic", "offset", "generation", "structure"}
    if needs_values:
        heads = read_heads(_binary(page.values))
    made = _key_columns(keys, columns, names)
    if heads is not None:
        made |= _value_columns(heads, needs_values)
    schema = arrow_schema(columns)
    return pa.RecordBatch.from_arrays([made[name] for name in columns], schema=schema)


def _picked(
    page: Page, names: Names, first: int | None, last: int | None, keep: Keep | None
) -> Page:
    """A page without the rows that conditions leave out."""
    heads = read_heads(_binary(page.values))
    kept = _published_between(heads, first, last)
    if keep is not None:
        rows: Any = np.arange(len(page.keys)) if kept is None else np.flatnonzero(kept)
        chosen = keep(page, names, heads, rows.tolist())
    elif kept is None:
        return page
    else:
        chosen = np.flatnonzero(kept).tolist()
    if len(chosen) == len(page.keys):
        return page
    return Page([page.keys[i] for i in chosen], [page.values[i] for i in chosen])


def _published_between(heads: Heads, first: int | None, last: int | None) -> Any:
    """Which rows were published in a range; None = all of them."""
    kept: Any = np.ones(len(heads.flags), dtype=bool)
    if first is not None:
        kept &= heads.published_at >= first
    if last is not None:
        kept &= heads.published_at <= last
    return None if kept.all() else kept


# -- keys ----------------------------------------------------------------------------------


def _key_columns(keys: Any, columns: Sequence[str], names: Names) -> dict[str, Any]:
    count = len(keys)
    offsets, data = _buffers(keys)
    starts = offsets[:-1]
    if count and int((offsets[1:] - starts).min()) < KEY_HEAD_BYTES:
        raise StorageCorrupt("a data key is cut short")
    head = data[starts[:, None] + np.arange(KEY_HEAD_BYTES)].view(">u8").reshape(count, 2)
    made: dict[str, Any] = {}
    if "offset" in columns:
        made["offset"] = _numbers(head[:, 1].astype(np.int64), pa.int64())
    if "generation" in columns:
        generations: Any = np.full(count, names.generation, dtype=np.int32)
        made["generation"] = _numbers(generations, pa.int32())
    if "topic" in columns or "structure" in columns:
        streams = head[:, 0].astype(np.int64)
        changes: Any = np.flatnonzero(streams[1:] != streams[:-1]) + 1
        runs = [0, *changes.tolist(), count] if count else [0]
        if "structure" in columns:
            made["structure"] = _patterns(streams, names)
        if "topic" in columns:
            made["topic"] = _topics(keys, streams, runs, names)
    return made


def _patterns(streams: Any, names: Names) -> Any:
    distinct, indices = np.unique(streams, return_inverse=True)
    patterns = _strings([names.pattern(int(stream)) for stream in distinct])
    return patterns.take(_numbers(indices.astype(np.int64), pa.int64()))


def _topics(keys: Any, streams: Any, runs: list[int], names: Names) -> Any:
    """The topics of a page: for each run of one stream, its pattern with the tokens put in."""
    count = len(keys)
    if len(runs) - 1 > max(1, count * _RUNS_PER_ROW_MAX):
        known: dict[bytes, str] = {}
        topics = []
        for key in keys.to_pylist():
            part = key[:STREAM_BYTES] + key[KEY_HEAD_BYTES:]
            topic = known.get(part)
            if topic is None:
                topic = known[part] = names.topic(key)
            topics.append(topic)
        return _strings(topics)
    # Two elements for each key, its head and its tokens, over the same bytes.
    offsets, _ = _buffers(keys)
    bounds: Any = np.empty(2 * count + 1, dtype=np.int32)
    bounds[0:-1:2] = offsets[:-1]
    bounds[1::2] = offsets[:-1] + KEY_HEAD_BYTES
    bounds[-1] = offsets[-1]
    parts = pa.Array.from_buffers(
        pa.binary(), 2 * count, [None, pa.py_buffer(bounds), keys.buffers()[2]]
    )
    tokens = parts.take(_every(1, 2 * count, 2))
    made = []
    for start, stop in pairwise(runs):
        levels = names.pattern(int(streams[start])).split("/")
        varying = levels.count("+")
        if varying == 0:
            topic = _strings([names.topic(keys[start].as_py())])[0]
            made.append(pa.repeat(topic, stop - start))
        elif varying == 1:
            place = levels.index("+")
            before = "".join(f"{level}/" for level in levels[:place])
            after = "".join(f"/{level}" for level in levels[place + 1 :])
            token = _text(tokens[start:stop], "topic")
            around = _strings([before, after, ""])
            made.append(pc.binary_join_element_wise(around[0], token, around[1], around[2]))
        else:
            coded = tokens[start:stop].dictionary_encode()
            head = keys[start].as_py()[:KEY_HEAD_BYTES]
            topics = [names.topic(head + part) for part in coded.dictionary.to_pylist()]
            made.append(_strings(topics).take(coded.indices))
    return pa.concat_arrays(made) if made else pa.nulls(0, pa.string())


# -- values --------------------------------------------------------------------------------


def read_heads(values: Any) -> Heads:
    """The fixed parts of message values, and where the variable parts lie.

    ``bounds`` has four elements for each value, and an end: the starts of its head, its
    publisher, its properties and its payload.
    """
    count = len(values)
    offsets, data = _buffers(values)
    starts = offsets[:-1]
    sizes = offsets[1:] - starts
    if count and int(sizes.min()) < _PLAIN:
        raise StorageCorrupt("a message is cut short")
    head = data[starts[:, None] + np.arange(_PLAIN)]
    newest = int(head[:, 0].max()) if count else _VERSION
    if newest > _VERSION:
        raise FormatTooNew(f"message record has version {newest}; this release reads {_VERSION}")
    if count and int(head[:, 0].min()) < _VERSION:
        raise StorageCorrupt("message record has no version")
    flags = head[:, 1]
    published_at = np.ascontiguousarray(head[:, 2:10]).view(">i8").reshape(count).astype(np.int64)
    publisher = (head[:, 10].astype(np.int32) << 8) | head[:, 11]
    head_size: Any = np.full(count, _PLAIN, dtype=np.int32)
    expires_at: Any = np.zeros(count, dtype=np.int64)
    properties: Any = np.zeros(count, dtype=np.int64)
    extended = np.flatnonzero(flags & _HAS_EXTENSION)
    if len(extended):
        if int(sizes[extended].min()) < _EXTENDED:
            raise StorageCorrupt("a message is cut short")
        tail = data[starts[extended][:, None] + np.arange(_PLAIN, _EXTENDED)]
        expires_at[extended] = np.ascontiguousarray(tail[:, :8]).view(">i8").reshape(-1)
        properties[extended] = np.ascontiguousarray(tail[:, 8:]).view(">u4").reshape(-1)
        head_size[extended] = _EXTENDED
    if bool((head_size + publisher + properties > sizes).any()):
        raise StorageCorrupt("a message is cut short")
    bounds: Any = np.empty(4 * count + 1, dtype=np.int32)
    bounds[0:-1:4] = starts
    bounds[1::4] = starts + head_size
    bounds[2::4] = bounds[1::4] + publisher
    bounds[3::4] = bounds[2::4] + properties.astype(np.int32)
    bounds[-1] = offsets[-1]
    return Heads(flags, published_at, expires_at, values, bounds)


def _value_columns(heads: Heads, wanted: set[str]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if "payload" in wanted:
        made["payload"] = _part(heads, 3)
    if "client_id" in wanted:
        made["client_id"] = _text(_part(heads, 1), "client id")
    if "published_at" in wanted:
        made["published_at"] = _moments(heads.published_at, None)
    if "expires_at" in wanted:
        made["expires_at"] = _moments(heads.expires_at, heads.expires_at == 0)
    if "qos" in wanted:
        made["qos"] = _numbers((heads.flags & _QOS).astype(np.int8), pa.int8())
    if "retain" in wanted:
        retained = pa.py_buffer(np.packbits((heads.flags & _RETAIN) != 0, bitorder="little"))
        made["retain"] = pa.Array.from_buffers(pa.bool_(), len(heads.flags), [None, retained])
    properties = wanted & PROPERTY_COLUMNS
    if properties:
        made |= _property_columns(heads, properties)
    return made


def _part(heads: Heads, part: int) -> Any:
    """One of the four parts of each value."""
    slots = pa.Array.from_buffers(
        pa.binary(),
        len(heads.bounds) - 1,
        [None, pa.py_buffer(heads.bounds), heads.values.buffers()[2]],
    )
    return slots.take(_every(part, len(heads.bounds) - 1, 4))


def _property_columns(heads: Heads, wanted: set[str]) -> dict[str, Any]:
    """MQTT 5.0 properties; each distinct set of them is decoded once."""
    count = len(heads.flags)
    sizes = heads.bounds[3::4] - heads.bounds[2:-1:4]
    if not sizes.any():
        return {name: pa.nulls(count, BY_NAME[name].type) for name in wanted}
    coded = _part(heads, 2).dictionary_encode()
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


def _moments(values: Any, missing: Any) -> Any:
    """Microseconds as moments; null where ``missing``."""
    valid = None
    if missing is not None:
        valid = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(TIMESTAMP, len(values), [valid, pa.py_buffer(values)])


def _numbers(values: Any, kind: Any) -> Any:
    """A numpy array of just this width as an Arrow array."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _every(first: int, end: int, step: int) -> Any:
    """Indices from ``first`` up to ``end``."""
    return _numbers(np.arange(first, end, step, dtype=np.int64), pa.int64())


def _binary(values: Sequence[bytes]) -> Any:
    """Byte strings as an Arrow array."""
    bounds: Any = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=bounds[1:])
    data = pa.py_buffer(b"".join(values))
    buffers = [None, pa.py_buffer(bounds.astype(np.int32)), data]
    assert int(bounds[-1]) < 2**31  # a page is far smaller
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def _strings(values: Sequence[str]) -> Any:
    """Texts as an Arrow array."""
    return _binary([value.encode() for value in values]).cast(pa.string())


def _text(values: Any, what: str) -> Any:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise StorageCorrupt(f"a {what} is not UTF-8") from error


def _buffers(array: Any) -> tuple[Any, Any]:
    """Offsets and bytes of a binary array that begins at its buffers' begin."""
    assert array.offset == 0
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32)[: len(array) + 1]
    bytes_ = (
        np.frombuffer(data, dtype=np.uint8)
        if data is not None and data.size
        else np.empty(0, dtype=np.uint8)
    )
    return bounds if len(array) else np.zeros(1, dtype=np.int32), bytes_
