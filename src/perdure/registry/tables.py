"""A registry as rows, for those who count in it: keys are read in pages, by whoever reads them.

One kind of row for everything, with empty columns (``SCHEMA``), so that one pass over the keys is
enough. ``list_keys`` finds the keys, ``read_rows`` reads what is in some of them, and may do so in
many processes at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias, TypeVar, final

import msgspec
import pyarrow as pa

from perdure.errors import ConfigError, PerdureError
from perdure.registry.channel import Channel, DeviceTransport
from perdure.registry.device import Device
from perdure.registry.reading import pairs_of, scanned_pages
from perdure.registry.registry import Registry
from perdure.storage.redis import Command

_T = TypeVar("_T")
_Run: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]

SUBSCRIPTION: Final = "subscription"
FILTER: Final = "filter"
DEVICE: Final = "device"
ERROR: Final = "error"

_FIELDS: Final = {
    "kind": (pa.string(), "string"),
    "channel": (pa.string(), "string"),
    "filter_id": (pa.string(), "string"),
    "place": (pa.int64(), "bigint"),
    "misplaced": (pa.bool_(), "boolean"),
    "device_id": (pa.string(), "string"),
    "transport": (pa.string(), "string"),
    "text": (pa.string(), "string"),
    "connected": (pa.bool_(), "boolean"),
    "seen_s": (pa.int64(), "bigint"),
}
SCHEMA: Final = pa.schema([(name, kind) for name, (kind, _) in _FIELDS.items()])
"""``place`` is the partition of a subscription; ``text`` a filter, the user of a device, or an
error; ``seen_s`` when something was heard of a device, Unix time."""
DDL: Final = ", ".join(f"{name} {kind}" for name, (_, kind) in _FIELDS.items())
KEYS: Final = pa.schema([("key", pa.binary())])
KEYS_DDL: Final = "key binary"

KEYS_AT_ONCE: Final = 500


@final
class Place(msgspec.Struct, frozen=True):
    """Which registry.

    Attributes:
        url, partitions, prefix: as of ``Registry.open``.
    """

    url: str
    partitions: int
    prefix: str


def list_keys(place: Place) -> Iterator[list[bytes]]:
    """All keys that have rows, in pages; each once.

    Raises:
        ConfigError, StorageError: the registry cannot be read.
    """
    with _opened(place) as (registry, run):
        yield from _driven(run, _keys_of(registry))


def read_rows(place: Place, pages: Iterable[Sequence[bytes]]) -> Iterator[list[dict[str, Any]]]:
    """What is in keys, in pages.

    Raises:
        ConfigError, StorageError: the registry cannot be read.
    """
    with _opened(place) as (registry, run):
        for page in pages:
            for first in range(0, len(page), KEYS_AT_ONCE):
                some = page[first : first + KEYS_AT_ONCE]
                yield from _driven(run, _rows_of(registry, some))


def read_batches(place: Place, batches: Iterable[Any]) -> Iterator[Any]:
    """``read_rows`` of Arrow batches with ``KEYS``, as batches with ``SCHEMA``; errors are rows."""
    try:
        for rows in read_rows(place, (batch.column("key").to_pylist() for batch in batches)):
            yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    except PerdureError as error:
        yield pa.RecordBatch.from_pylist([{"kind": ERROR, "text": error.message}], schema=SCHEMA)


def reader(place: Place) -> Any:
    """Everything, as an Arrow ``RecordBatchReader``; read as it is used."""
    keys = (pa.RecordBatch.from_pydict({"key": page}, schema=KEYS) for page in list_keys(place))
    return pa.RecordBatchReader.from_batches(SCHEMA, read_batches(place, keys))


@contextlib.contextmanager
def _opened(place: Place) -> Iterator[tuple[Registry, _Run]]:
    """A registry on a loop of its own, and what runs a step of that loop."""
    with asyncio.Runner() as runner:
        registry = runner.run(
            Registry.open(place.url, partitions=place.partitions, prefix=place.prefix)
        )
        try:
            yield registry, runner.run
        finally:
            runner.run(registry.close())


def _driven(run: _Run, pages: AsyncIterator[_T]) -> Iterator[_T]:
    async def following() -> _T | None:
        return await anext(pages, None)

    while (page := run(following())) is not None:
        yield page


async def _keys_of(registry: Registry) -> AsyncIterator[list[bytes]]:
    seen: set[bytes] = set()
    for kind in ("subscription:", "filters:", "device:"):
        async for page in registry.client.scan(f"{registry.keys.prefix}{kind}*".encode()):
            fresh = [key for key in dict.fromkeys(page) if key not in seen]
            seen.update(fresh)
            yield fresh


async def _rows_of(
    registry: Registry, keys: Sequence[bytes]
) -> AsyncIterator[list[dict[str, Any]]]:
    prefix = registry.keys.prefix
    kinds: dict[str, list[bytes]] = {}
    for key in keys:
        kind = key.decode(errors="replace").removeprefix(prefix).partition(":")[0]
        kinds.setdefault(kind, []).append(key)
    places = dict(_places(registry, kinds.get("subscription", [])))
    async for members in scanned_pages(registry.client, list(places)):
        yield [
            {**places[key], **_device_of(member)}
            for key, some in members.items()
            for member in some
        ]
    yield await _filters(registry, kinds.get("filters", []))
    yield await _devices(registry, kinds.get("device", []))


def _places(registry: Registry, keys: Sequence[bytes]) -> Iterator[tuple[bytes, dict[str, Any]]]:
    for key in keys:
        try:
            channel_key, filter_id, partition = registry.keys.parse_subscription(key)
            Channel.parse(channel_key)
        except ConfigError:
            continue  # somebody else's
        yield (
            key,
            {
                "kind": SUBSCRIPTION,
                "channel": channel_key,
                "filter_id": filter_id,
                "place": partition,
                "misplaced": partition != registry.keys.partition(channel_key),
            },
        )


def _device_of(member: str) -> dict[str, str]:
    try:
        device = DeviceTransport.parse(member)
    except ConfigError:
        return {"device_id": member, "transport": ""}
    return {"device_id": device.device_id, "transport": device.transport}


async def _filters(registry: Registry, keys: Sequence[bytes]) -> list[dict[str, Any]]:
    replies = await registry.write([Command(("HGETALL", key), key) for key in keys])
    begin = len(registry.keys.prefix + "filters:")
    return [
        {"kind": FILTER, "channel": key.decode()[begin:], "filter_id": filter_id, "text": text}
        for key, reply in zip(keys, replies, strict=True)
        for filter_id, text in pairs_of(reply).items()
    ]


async def _devices(registry: Registry, keys: Sequence[bytes]) -> list[dict[str, Any]]:
    begin = len(registry.keys.device(""))
    return [_row(each) for each in await registry.devices([key[begin:].decode() for key in keys])]


def _row(device: Device) -> dict[str, Any]:
    try:
        seen_s = int(datetime.fromisoformat(device.last_seen_at).timestamp())
    except ValueError:
        seen_s = None
    return {
        "kind": DEVICE,
        "device_id": device.device_id,
        "transport": ",".join(sorted(device.connections)),
        "text": device.user_id,
        "connected": device.is_connected,
        "seen_s": seen_s,
    }
