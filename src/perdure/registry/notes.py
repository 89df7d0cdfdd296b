"""What a broker has written of its clients: a note of each, in hashes that many clients share.

::

    nxx:perdure:mirror:WORKER:B     HASH  client      -> number of pieces (1 byte), first piece
                                          client NUL n -> piece n
    B = CRC-32 of the client identifier modulo ``BUCKETS``

The pieces are the names of its subscriptions, ``CHANNEL[:filter:FILTER]``, as MessagePack. In
pieces, because Redis keeps a hash of short fields in one piece of memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, final

import msgspec

from perdure.errors import StorageCorrupt
from perdure.registry.channel import Channel
from perdure.registry.packing import PIECE_BYTES, lengthen, shorten
from perdure.storage.redis import Command, RedisClient
from perdure.storage.redis.commands import check

BUCKETS: Final = 4096
"""Hashes of one broker: 250 clients in each at a million."""

BUCKETS_AT_ONCE: Final = 256
PIECES_MAX: Final = 255
"""More is one piece, whatever memory it takes."""

Noted = frozenset[tuple[str, str]]
"""Subscriptions: key of the channel, and id of the filter (empty = none)."""

NONE: Final[Noted] = frozenset()

_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(list[bytes]).decode


@final
class Notes:
    """Notes of one broker.

    Args:
        client: connected.
        prefix: of all keys.
        worker: the broker's name.
    """

    def __init__(self, client: RedisClient, prefix: str, worker: str) -> None:
        self._client = client
        self._prefix = f"{prefix}perdure:mirror:{worker}:".encode()

    def put(self, name: str, noted: Noted, earlier: Noted | None) -> list[Command]:
        """Note what a client subscribes to.

        Args:
            name: of the client.
            noted: what.
            earlier: what the note said; None = there is none.
        """
        key, fields = self._key(name), _fields(name, noted)
        commands = [Command(("HSET", key, *(part for pair in fields for part in pair)), key)]
        rest = [] if earlier is None else _fields(name, earlier)[len(fields) :]
        if rest:
            commands.append(Command(("HDEL", key, *(field for field, _ in rest)), key))
        return commands

    def remove(self, name: str, earlier: Noted) -> Command:
        """Forget a client's note."""
        key = self._key(name)
        return Command(("HDEL", key, *(field for field, _ in _fields(name, earlier))), key)

    async def read(self, names: Sequence[str]) -> dict[str, Noted]:
        """The notes of clients; who has none is left out.

        Raises:
            StorageCorrupt: a note is not what we write.
        """
        by_key: dict[bytes, list[str]] = {}
        for name in names:
            by_key.setdefault(self._key(name), []).append(name)
        keys, found = list(by_key), dict[str, Noted]()
        for first in range(0, len(keys), BUCKETS_AT_ONCE):
            page = keys[first : first + BUCKETS_AT_ONCE]
            for key, fields in zip(page, await self._hashes(page), strict=True):
                found |= _notes_in(fields, by_key[key])
        return found

    async def names(self) -> list[str]:
        """All clients that have a note."""
        found: list[str] = []
        keys = [self._prefix + b"%d" % number for number in range(BUCKETS)]
        for first in range(0, BUCKETS, BUCKETS_AT_ONCE):
            for fields in await self._hashes(keys[first : first + BUCKETS_AT_ONCE]):
                found += [field.decode() for field in fields if b"\0" not in field]
        return found

    async def _hashes(self, keys: Sequence[bytes]) -> list[Mapping[bytes, bytes]]:
        replies = await self._client.execute([Command(("HGETALL", key), key) for key in keys])
        found: list[Mapping[bytes, bytes]] = []
        for reply in replies:
            parts = check(reply)
            assert isinstance(parts, list)
            texts = [part for part in parts if isinstance(part, bytes)]
            found.append(dict(zip(texts[::2], texts[1::2], strict=True)))
        return found

    def _key(self, name: str) -> bytes:
        return self._prefix + b"%d" % (zlib.crc32(name.encode()) % BUCKETS)


def _fields(name: str, noted: Noted) -> list[tuple[bytes, bytes]]:
    text = _encode(sorted(shorten(_joined(*each)) for each in noted))
    size = PIECE_BYTES if len(text) <= PIECE_BYTES * PIECES_MAX else len(text)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    field = name.encode()
    return [(field, bytes([len(pieces)]) + pieces[0])] + [
        (b"%b\0%d" % (field, number), piece) for number, piece in enumerate(pieces[1:], 1)
    ]


def _notes_in(fields: Mapping[bytes, bytes], names: Iterable[str]) -> dict[str, Noted]:
    found: dict[str, Noted] = {}
    for name in names:
        field = name.encode()
        first = fields.get(field)
        if first is None:
            continue
        try:
            rest = (fields[b"%b\0%d" % (field, number)] for number in range(1, first[0]))
            shorts = _decode(b"".join((first[1:], *rest)))
            found[name] = frozenset(_split(lengthen(each)) for each in shorts)
        except (KeyError, IndexError, ValueError) as error:
            raise StorageCorrupt(f"the note of the client {name!r} cannot be read") from error
    return found


def _joined(channel_key: str, filter_id: str) -> bytes:
    return (f"{channel_key}:filter:{filter_id}" if filter_id else channel_key).encode()


def _split(text: bytes) -> tuple[str, str]:
    channel_key, _, filter_id = text.decode().partition(":filter:")
    return Channel.parse(channel_key).key, filter_id
