"""The layout ``tbmq``: the keys and the JSON of TBMQ 2.x, as commands and replies.

::

    <prefix>{<client id>}_messages                sorted set: score -> name of the entry's key
    <prefix>{<client id>}_messages_<packet id>    string: JSON (``tbmq_record``), with a TTL
    <prefix>{<client id>}_last_packet_id          string: decimal
    <prefix>{<client id>}_perdure                 hash, ours: epoch, last position, PUBREL entries,
                                                  the owner's bytes; TBMQ does not look at it

TBMQ's prefix is empty unless it is configured. The client id stands in the keys as it is, braces
and all. Order is the score. ``lua/tbmq`` does the work in the server. Pure.

A script is only safe while a cluster moves the slot if the keys it decides about are declared. So
reading is two steps: one that looks, and, where a string seems to be gone, one that has its key
declared and makes sure.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from importlib import resources
from typing import Final, NamedTuple, final

from perdure.errors import UsageError
from perdure.storage.device_queue import NewEntry, QueuedEntry, QueueStats
from perdure.storage.redis import tbmq_record
from perdure.storage.redis.commands import Argument, Command, Reply, Script, check
from perdure.storage.redis.node import Code

_FOLDER: Final = resources.files(__package__).joinpath("lua/tbmq")


def _script(name: str) -> Script:
    prelude, body = (
        _FOLDER.joinpath(f"{part}.lua").read_text(encoding="utf-8") for part in ("prelude", name)
    )
    return Script(prelude + body)


_APPEND: Final = _script("append")
_TAKE: Final = _script("take")
_STATS: Final = _script("stats")
_RELEASE: Final = _script("release")
_REMOVE: Final = _script("remove")
_DISCARD: Final = _script("discard")
_READ: Final = _script("read")
_LOOK: Final = _script("look")

CODE: Final = Code(scripts=(_APPEND, _TAKE, _STATS, _RELEASE, _REMOVE, _DISCARD, _READ, _LOOK))

_MESSAGES: Final = b"_messages"
_LAST: Final = b"_last_packet_id"
_OURS: Final = b"_perdure"
_SUFFIXES: Final = (b"}" + _MESSAGES, b"}" + _LAST, b"}" + _OURS)
_pack_head = struct.Struct(">QQHBQ").pack


class Place(NamedTuple):
    """Where an entry stands: the name of its key, and its serial."""

    member: bytes
    serial: int


class LookedAt(NamedTuple):
    """What ``read`` saw.

    Attributes:
        entries: those whose string is there, in order.
        missing: those whose string seems to be gone.
        next_after: where the next page begins; None = no more.
    """

    entries: list[QueuedEntry]
    missing: list[Place]
    next_after: int | None


@final
class TbmqLayout:
    """Builds the commands and reads the replies.

    Args:
        prefix: of all keys, as TBMQ is configured.
    """

    code: Final = CODE

    def __init__(self, prefix: str = "") -> None:
        self._begin = f"{prefix}{{".encode()

    @property
    def pattern(self) -> bytes:
        """What all keys of queues match (a glob); ``client_id`` tells the others apart."""
        special = (b"\\", b"*", b"?", b"[", b"]")
        begin = self._begin
        for character in special:
            begin = begin.replace(character, b"\\" + character)
        return begin + b"*}_*"

    def client_id(self, key: bytes) -> str | None:
        """Whose queue a key belongs to; None = it is none of the three that every queue has."""
        if key.startswith(self._begin):
            # From the end: a client id may hold braces and the suffixes themselves.
            for suffix in _SUFFIXES:
                if key.endswith(suffix) and len(key) >= len(self._begin) + len(suffix):
                    try:
                        return key[len(self._begin) : -len(suffix)].decode()
                    except UnicodeDecodeError:
                        return None
        return None

    def check_client(self, client_id: str) -> None:
        """Refuse a client whose keys a cluster would spread over several slots.

        Raises:
            UsageError: nothing stands between the first brace and the first closing one.
        """
        base = self._base(client_id)
        if base.find(b"}", base.find(b"{")) == base.find(b"{") + 1:
            raise UsageError(
                f"client id {client_id!r} cannot have a queue of layout tbmq in a cluster",
                hint="its keys have no hash tag; use the layout compact",
            )

    def member(self, client_id: str, packet_id: int) -> bytes:
        """The key of an entry, which is also its member in the set."""
        return b"%b_messages_%d" % (self._base(client_id), packet_id)

    def take(self, client_id: str, *, epoch: int) -> Command:
        """Its reply is empty, or an error."""
        return self._call(_TAKE, client_id, (), epoch)

    def append(self, client_id: str, entries: Sequence[NewEntry], *, limit: int) -> Command:
        """Entries of one client; its reply: ``replies.appended_of``."""
        base = self._base(client_id)
        args: list[Argument] = [limit, base + b"_messages_"]
        for new in entries:
            deadline_ms = tbmq_record.deadline_ms(new)
            head = _pack_head(new.position, new.serial, new.packet_id, new.state, deadline_ms)
            args += (head, tbmq_record.tail(new), new.extra)
        return self._call(_APPEND, client_id, (), *args)

    def read(self, client_id: str, *, after_serial: int, limit: int, bytes_max: int) -> Command:
        """Its reply: ``looked_at``."""
        return self._call(_READ, client_id, (), after_serial, limit, bytes_max)

    def look(self, client_id: str, *, after_serial: int, limit: int) -> Command:
        """Its reply: ``expiries_of``."""
        return self._call(_LOOK, client_id, (), after_serial, limit)

    def acknowledge(self, client_id: str, packet_ids: Sequence[int], *, epoch: int) -> Command:
        """Its reply is the number of deleted entries."""
        members = [self.member(client_id, packet_id) for packet_id in packet_ids]
        return self._call(_REMOVE, client_id, members, epoch, "", *([""] * len(members)))

    def release(
        self, client_id: str, packet_ids: Sequence[int], *, epoch: int, forget_at_us: int
    ) -> Command:
        """Its reply is the number of PUBREL entries."""
        members = [self.member(client_id, packet_id) for packet_id in packet_ids]
        lifetime = tbmq_record.to_ms(forget_at_us)
        bare = tbmq_record.bare_pubrel_tail(client_id)
        return self._call(_RELEASE, client_id, members, epoch, lifetime, bare)

    def remove(
        self, client_id: str, places: Sequence[Place], *, epoch: int | None = None
    ) -> Command:
        """Delete these very entries, as their owner or as anybody; its reply is how many."""
        fence = "" if epoch is None else epoch
        serials = [place.serial for place in places]
        members = [place.member for place in places]
        return self._call(_REMOVE, client_id, members, fence, "", *serials)

    def clean(self, client_id: str, places: Sequence[Place]) -> Command:
        """Delete these very entries if their strings are gone; its reply is how many."""
        serials = [place.serial for place in places]
        members = [place.member for place in places]
        return self._call(_REMOVE, client_id, members, "", 1, *serials)

    def discard(self, client_id: str, places: Sequence[Place], *, epoch: int) -> Command:
        """Its reply: 0 = unknown client, 1 = gone, 2 = there are more entries than these."""
        return self._call(_DISCARD, client_id, [place.member for place in places], epoch)

    def stats(self, client_id: str) -> Command:
        """Its reply: ``stats_of``."""
        return self._call(_STATS, client_id, ())

    def _base(self, client_id: str) -> bytes:
        return b"%b%b}" % (self._begin, client_id.encode())

    def _call(
        self, script: Script, client_id: str, members: Sequence[bytes], *args: Argument
    ) -> Command:
        base = self._base(client_id)
        key = base + _MESSAGES
        keys = (key, base + _LAST, base + _OURS, *members)
        return Command((b"EVALSHA", script.sha, len(keys), *keys, *args), key)


def looked_at(reply: Reply, *, after_serial: int) -> LookedAt:
    """What ``read`` saw."""
    answer = check(reply)
    assert isinstance(answer, list)
    more, page, missing = answer
    assert isinstance(page, list)
    entries = []
    for at in range(0, len(page), 5):
        member, score, json, expiry_ms, extra = page[at : at + 5]
        assert isinstance(member, bytes)
        assert isinstance(json, bytes)
        assert isinstance(expiry_ms, int)
        entries.append(
            tbmq_record.decode(
                json,
                serial=_serial(score),
                packet_id=packet_id_of(member),
                expiry_ms=expiry_ms,
                extra=extra if isinstance(extra, bytes) else b"",
            )
        )
    assert isinstance(missing, list)
    places = [
        Place(_bytes(member), _serial(score))
        for member, score in zip(missing[::2], missing[1::2], strict=True)
    ]
    last = max(
        [after_serial, *(entry.serial for entry in entries), *(place.serial for place in places)]
    )
    return LookedAt(entries, places, last if more else None)


def expiries_of(reply: Reply) -> list[tuple[Place, int]]:
    """Entries and when the server forgets them, milliseconds; -1 = never, -2 = it has."""
    page = check(reply)
    assert isinstance(page, list)
    found = []
    for at in range(0, len(page), 3):
        member, score, expiry_ms = page[at : at + 3]
        assert isinstance(expiry_ms, int)
        found.append((Place(_bytes(member), _serial(score)), expiry_ms))
    return found


def stats_of(client_id: str, reply: Reply) -> QueueStats | None:
    """The numbers of a queue; None = unknown client."""
    answer = check(reply)
    if answer is None:
        return None
    assert isinstance(answer, list)
    numbers = [number for number in answer if isinstance(number, int)]
    epoch, position, serial, last_id, count, pubrels, size = numbers
    return QueueStats(
        client_id=client_id,
        publish_count=count - pubrels,
        pubrel_count=pubrels,
        payload_bytes=size,
        last_packet_id=last_id,
        last_serial=serial,
        last_position=position,
        epoch=epoch,
    )


def packet_id_of(member: bytes) -> int:
    """The packet identifier at the end of an entry's key; 0 = there is none."""
    digits = member.rpartition(b"_")[2]
    return int(digits) if digits.isdigit() else 0


def _serial(score: Reply) -> int:
    assert isinstance(score, bytes)
    return int(float(score))


def _bytes(reply: Reply) -> bytes:
    assert isinstance(reply, bytes)
    return reply
