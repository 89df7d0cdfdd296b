"""The layout ``compact``: one hash for each client, as commands and replies.

::

    <prefix>q:{<client id>}     hash: "m" -> numbers, packet identifier -> record
                                "i" -> order of the identifiers, only while it is not theirs

Up to ``hash-max-listpack-entries`` entries of at most ``hash-max-listpack-value`` bytes the server
keeps such a hash as one packed list: no index, no pointers. Past either it turns into a table by
itself, and nothing else changes. A single key moves between nodes of a cluster as a whole, so that
a queue is never half here and half there.

``lua/compact.lua`` does the work in the server; ``record`` draws the records. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from importlib import resources
from operator import attrgetter
from typing import Final, final
from urllib.parse import unquote_to_bytes

from perdure.errors import StorageCorrupt
from perdure.storage.device_queue import NewEntry, QueuedEntry, QueuePage, QueueStats, is_expired
from perdure.storage.redis import record
from perdure.storage.redis.commands import Argument, Command, Library, Reply, check
from perdure.storage.redis.node import Code

DEFAULT_PREFIX: Final = "perdure:"

LIBRARY: Final = Library(
    "perdure_queue",
    resources.files(__package__).joinpath("lua/compact.lua").read_text(encoding="utf-8"),
)
CODE: Final = Code(libraries=(LIBRARY,))

_ENTRY_HEAD: Final = struct.Struct(">QQHB")
_pack_entry_head = _ENTRY_HEAD.pack
_META: Final = struct.Struct(">BB7s7s7sHHHH7s")
_KEYS_MAX: Final = 65_536
"""Keys that a layout remembers."""

_serial_of: Final = attrgetter("serial")

_APPEND: Final = LIBRARY.function("perdure_append")
_TAKE: Final = LIBRARY.function("perdure_take")
_ACKNOWLEDGE: Final = LIBRARY.function("perdure_acknowledge")
_RELEASE: Final = LIBRARY.function("perdure_release")
_TRIM: Final = LIBRARY.function("perdure_trim")
_DISCARD: Final = LIBRARY.function("perdure_discard")
_PURGE: Final = LIBRARY.function("perdure_purge")
_SWEEP: Final = LIBRARY.function("perdure_sweep")
_READ: Final = LIBRARY.function("perdure_read")
_STATS: Final = LIBRARY.function("perdure_stats")


@final
class CompactLayout:
    """Builds the commands and reads the replies.

    Args:
        prefix: of all keys; braces in it would put all queues into one hash slot.
    """

    code: Final = CODE

    def __init__(self, prefix: str = DEFAULT_PREFIX) -> None:
        self._begin = f"{prefix}q:{{".encode()
        self._keys: dict[str, bytes] = {}

    @property
    def pattern(self) -> bytes:
        """What all keys of queues match (a glob)."""
        return b"".join((_escape_glob(self._begin), b"*}"))

    def key(self, client_id: str) -> bytes:
        """The key of a queue, whose hash tag is the client id, whatever that holds."""
        key = self._keys.get(client_id)
        if key is None:
            name = client_id.encode().replace(b"%", b"%25").replace(b"{", b"%7B")
            # An empty tag would be none.
            name = name.replace(b"}", b"%7D") or b"%"
            key = b"%b%b}" % (self._begin, name)
            if len(self._keys) >= _KEYS_MAX:
                self._keys.clear()
            self._keys[client_id] = key
        return key

    def client_id(self, key: bytes) -> str | None:
        """Whose queue a key is; None = it is none of ours."""
        if not (key.startswith(self._begin) and key.endswith(b"}")):
            return None
        name = key[len(self._begin) : -1]
        try:
            return "" if name == b"%" else unquote_to_bytes(name).decode()
        except UnicodeDecodeError:
            return None

    def take(self, client_id: str, *, epoch: int) -> Command:
        """Its reply: ``stats_of``."""
        return self._call(_TAKE, client_id, epoch)

    def append(self, client_id: str, entries: Sequence[NewEntry], *, limit: int) -> Command:
        """Entries of one client; its reply: ``replies.appended_of``."""
        key = self.key(client_id)
        args: list[Argument] = [b"FCALL", _APPEND, 1, key, limit]
        for new in entries:
            flags, body = record.encode(new)
            args.append(_pack_entry_head(new.position, new.serial, new.packet_id, flags) + body)
        return Command(tuple(args), key)

    def glance(self, client_id: str) -> Command:
        """All of a shallow queue, without a function; its reply: ``is_whole``, then ``page_of``.

        A packed list is answered as a whole, and is small; of a table come a few entries only.
        """
        key = self.key(client_id)
        return Command((b"HSCAN", key, b"0", b"COUNT", b"1"), key)

    def read(self, client_id: str, *, after_serial: int, limit: int, bytes_max: int) -> Command:
        """A page of any queue; its reply: ``page_of``."""
        return self._call(_READ, client_id, after_serial, limit, bytes_max)

    def acknowledge(self, client_id: str, packet_ids: Sequence[int], *, epoch: int) -> Command:
        """Its reply is the number of deleted entries."""
        return self._call(_ACKNOWLEDGE, client_id, epoch, *packet_ids)

    def release(
        self, client_id: str, packet_ids: Sequence[int], *, epoch: int, forget_at_us: int
    ) -> Command:
        """Its reply is the number of PUBREL entries."""
        return self._call(_RELEASE, client_id, epoch, forget_at_us, *packet_ids)

    def trim_through(self, client_id: str, serial: int, *, epoch: int) -> Command:
        """Its reply is the number of deleted entries."""
        return self._call(_TRIM, client_id, epoch, serial)

    def discard(self, client_id: str, *, epoch: int) -> Command:
        """Its reply: 1 if there was a queue, else 0."""
        return self._call(_DISCARD, client_id, epoch)

    def stats(self, client_id: str) -> Command:
        """Its reply: ``stats_of``."""
        return self._call(_STATS, client_id)

    def purge(self, client_id: str, entries: Sequence[QueuedEntry]) -> Command:
        """Delete these very entries; its reply is how many were there."""
        pairs = [number for entry in entries for number in (entry.serial, entry.packet_id)]
        return self._call(_PURGE, client_id, *pairs)

    def sweep(
        self, client_id: str, *, now_us: int, limit: int, look: int, after: int, soonest: int
    ) -> Command:
        """Its reply: deleted entries, the serial to go on after (-1 = done), earliest deadline."""
        return self._call(_SWEEP, client_id, now_us, limit, look, after, soonest)

    def _call(self, function: bytes, client_id: str, *args: int) -> Command:
        key = self.key(client_id)
        return Command((b"FCALL", function, 1, key, *args), key)


def is_whole(reply: Reply) -> bool:
    """Whether a ``glance`` saw all of the queue."""
    answer = check(reply)
    assert isinstance(answer, list)
    return answer[0] == b"0"


def page_of(
    reply: Reply, *, after_serial: int, limit: int, bytes_max: int, now_us: int
) -> tuple[QueuePage, list[QueuedEntry]]:
    """A page, and the expired entries that were left out of it and must be purged.

    Args:
        reply: of ``read``, or of a ``glance`` that saw the whole queue.
    """
    more, flat = check(reply)  # type: ignore[misc]
    assert isinstance(flat, list)
    entries: list[QueuedEntry] = []
    decode = record.decode
    for at in range(0, len(flat), 2):
        field = flat[at]
        if field.isdigit():  # type: ignore[union-attr]
            entry = decode(int(field), flat[at + 1])  # type: ignore[arg-type]
            if entry.serial > after_serial:
                entries.append(entry)
    if len(entries) > 1:
        # A shallow queue comes without order.
        entries.sort(key=_serial_of)
    # After a glance ``more`` is the cursor: b"0".
    next_after = entries[-1].serial if more == 1 and entries else None
    page: list[QueuedEntry] = []
    expired: list[QueuedEntry] = []
    size = 0
    for entry in entries:
        if is_expired(entry, now_us):
            expired.append(entry)
            continue
        size += len(entry.message.payload)
        if page and (len(page) == limit or size > bytes_max):
            return QueuePage(page, page[-1].serial), expired
        page.append(entry)
    return QueuePage(page, next_after), expired


def stats_of(client_id: str, reply: Reply) -> QueueStats | None:
    """The numbers of a queue; None = unknown client.

    Raises:
        StorageError: it was refused.
    """
    answer = check(reply)
    if answer is None:
        return None
    assert isinstance(answer, list)
    meta, depth, size = answer
    assert isinstance(meta, bytes)
    assert isinstance(depth, int)
    if len(meta) != _META.size:
        raise StorageCorrupt(f"the queue of {client_id!r} has wrong numbers")
    _, _, epoch, position, serial, last_id, _, _, pubrels, _ = _META.unpack(meta)
    return QueueStats(
        client_id=client_id,
        publish_count=depth - pubrels,
        pubrel_count=pubrels,
        payload_bytes=size if isinstance(size, int) else 0,
        last_packet_id=last_id,
        last_serial=int.from_bytes(serial, "big"),
        last_position=int.from_bytes(position, "big"),
        epoch=int.from_bytes(epoch, "big"),
    )


def _escape_glob(text: bytes) -> bytes:
    for special in (b"\\", b"*", b"?", b"[", b"]"):
        text = text.replace(special, b"\\" + special)
    return text
