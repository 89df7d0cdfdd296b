"""A record of the shared log as bytes: who submitted it, and what it changes.

Versioned, with a golden file.

Integers are big-endian, text is UTF-8::

    record   version=1 (1) | node | incarnation (8) | number (8) | more (1) | act count (2) | acts
             | batch, or a part of it, to the end
    node     length (1) | text
    act      kind (1) | length (4) | body

    kind   body
    1      format (1) | advertise              join: the submitter reads records up to this version
    2                                          leave: it has let go of everything
    3      node | incarnation (8) | heard (8)  expel: unless it was heard of after that number
    4      node                                forget: nothing is known of it any more
    5      offset (8) | topic                  expire: a retained message, if it is still that one
    6      base (8) | database                 begin: what the log goes on from, the first

``number`` counts the records of an incarnation from 1. ``more`` is 1 where the batch goes on in the
next record of the same submitter: what does not fit into one record still takes effect at once. A
record without acts and without a batch is a heartbeat. The batch is ``batch_codec``'s.

How two releases run side by side: a node writes the newest version that every node has said it
reads, also one that is not there now (``members.Members.format``), so a version is written once the
last node was upgraded. A node that meets a newer one, or an act that it does not know, stops and
says so.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, TypeAlias

from perdure.errors import FormatTooNew, StorageCorrupt

VERSION: Final = 1

PREFIX_BYTES_MAX: Final = 1024
"""What a record without acts takes besides the batch, at most."""

NAME_BYTES_MAX: Final = 255

_IDENTITY: Final = struct.Struct(">QQBH")
_ACT: Final = struct.Struct(">BI")
_EXPEL: Final = struct.Struct(">QQ")
_OFFSET: Final = struct.Struct(">Q")


class Join(NamedTuple):
    """The submitter is a member from here on.

    Attributes:
        format: the newest version of records that it reads.
        advertise: where clients reach it; empty = it does not say.
    """

    format: int
    advertise: str = ""


class Leave(NamedTuple):
    """The submitter is no member any more, and holds nothing."""


class Expel(NamedTuple):
    """An incarnation is no member any more.

    Attributes:
        node: its name.
        incarnation: which one.
        heard: the number of its last record that the submitter has read; a later one refuses this.
    """

    node: str
    incarnation: int
    heard: int


class Forget(NamedTuple):
    """A node that is no member will not come back.

    Attributes:
        node: its name.
    """

    node: str


class Expire(NamedTuple):
    """A retained message has expired.

    Attributes:
        offset: of the message that the submitter has seen; another one refuses this.
        topic: its topic.
    """

    offset: int
    topic: str


class Begin(NamedTuple):
    """What the log goes on from; the first one counts.

    Attributes:
        base: the last offset that the submitter's store had before it applied anything of the log;
            0 = it was empty.
        database: identifies the store, and from here on the log on all nodes.
    """

    base: int
    database: str


Act: TypeAlias = Join | Leave | Expel | Forget | Expire | Begin

ANYHOW: Final = 2**64 - 1
"""``Expel.heard`` of somebody who knows better: an operator."""


class Record(NamedTuple):
    """What a node submits.

    Attributes:
        node: the submitter's name.
        incarnation: of its process; random, never 0.
        number: from 1, for each record of the incarnation one higher.
        acts: what it does to the members and to what is not a session's.
        batch: the bytes of a batch or of a part of one; empty = none.
        more: the next record has more of the batch.
    """

    node: str
    incarnation: int
    number: int
    acts: tuple[Act, ...] = ()
    batch: bytes = b""
    more: bool = False


def encode_record(record: Record, version: int = VERSION) -> bytes:
    """The bytes of a record.

    Args:
        record: what is submitted.
        version: 1 to ``VERSION``: one that all who read it know.
    """
    identity = _IDENTITY.pack(record.incarnation, record.number, int(record.more), len(record.acts))
    parts = [bytes([version]), _name(record.node), identity]
    for act in record.acts:
        kind, body = _encode_act(act)
        parts += (_ACT.pack(kind, len(body)), body)
    parts.append(record.batch)
    return b"".join(parts)


def decode_record(value: bytes) -> Record:
    """The record in some bytes.

    Raises:
        StorageCorrupt: they are none.
        FormatTooNew: a later release wrote it.
    """
    if value[:1] > bytes([VERSION]):
        raise FormatTooNew(
            f"a record of the shared log has version {value[0]}; this release reads {VERSION}",
            hint="upgrade this node",
        )
    try:
        if not value[0]:
            raise StorageCorrupt("a record of the shared log has no version")
        node, at = _read_name(value, 1)
        incarnation, number, more, act_count = _IDENTITY.unpack_from(value, at)
        at += _IDENTITY.size
        acts: list[Act] = []
        for _ in range(act_count):
            kind, length = _ACT.unpack_from(value, at)
            at += _ACT.size
            if at + length > len(value):
                raise StorageCorrupt("a record of the shared log is cut short")
            acts.append(_decode_act(kind, value[at : at + length]))
            at += length
    except (struct.error, UnicodeDecodeError, LookupError) as error:
        raise StorageCorrupt(f"a record of the shared log does not decode: {error!r}") from error
    return Record(node, incarnation, number, tuple(acts), value[at:], bool(more))


def _name(text: str) -> bytes:
    raw = text.encode()
    return bytes([len(raw)]) + raw


def _read_name(value: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + value[at]
    if end > len(value):
        raise StorageCorrupt("a record of the shared log is cut short")
    return value[at + 1 : end].decode(), end


def _encode_act(act: Act) -> tuple[int, bytes]:
    match act:
        case Join():
            return 1, bytes([act.format]) + act.advertise.encode()
        case Leave():
            return 2, b""
        case Expel():
            return 3, _name(act.node) + _EXPEL.pack(act.incarnation, act.heard)
        case Forget():
            return 4, _name(act.node)
        case Expire():
            return 5, _OFFSET.pack(act.offset) + act.topic.encode()
        case Begin():
            return 6, _OFFSET.pack(act.base) + act.database.encode()


def _decode_act(kind: int, body: bytes) -> Act:
    match kind:
        case 1:
            return Join(body[0], body[1:].decode())
        case 2:
            return Leave()
        case 3:
            node, at = _read_name(body, 0)
            return Expel(node, *_EXPEL.unpack_from(body, at))
        case 4:
            return Forget(_read_name(body, 0)[0])
        case 5:
            return Expire(_OFFSET.unpack_from(body)[0], body[_OFFSET.size :].decode())
        case 6:
            return Begin(_OFFSET.unpack_from(body)[0], body[_OFFSET.size :].decode())
        case _:
            raise FormatTooNew(
                f"a record of the shared log has an act of kind {kind}, which this release does "
                "not know",
                hint="upgrade this node",
            )
