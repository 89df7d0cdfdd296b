"""An operation of a batch as bytes: its kind, and a body (``batch_codec``).

Integers are big-endian; text is UTF-8. ``message``, ``entry``, ``cursor`` and ``record`` are the
values of ``codec``::

    kind   body
    1      record                         put a session
    2      owner                          discard a session
    3      owner | cursor                 put a cursor
    4, 5   owner | record                 put, delete a subscription
    6, 7   owner | packet id (2)          put, delete an awaiting-release identifier
    8, 19  owner | place (8) | entry      put an inbox entry, its tombstone
    9      owner | offset (8)             trim an inbox
    10     seen (8) | record              put a group
    11     group key                      discard a group
    12, 13 name | client id               put, delete a member; name: of the group
    14     name | owner | place (8) | entry   put a group's entry; owner: who had it
    15     name | place (8)               delete one
    16     name | place (8) | message     put a retained message; name: its topic
    17     index (4)                      retain a message of this batch
    18     name | publisher               delete a retained message; name: its topic
    20     seen (8) | record              claim a session
    21     after (4) | owner              let what a publisher says behind that many messages count
    22     after (4) | name | message     pass a message on that is not recorded; name: its topic;
                                          after: messages of the batch that came before it
    23     owner | entry                  give at QoS 0 what is not in a private stream
    24     owner | offset (8)             return what groups gave behind an offset
    25     number (8) | name | name       ask a node, answer it; names: for whom, of who has asked
    26     owner | 1 if it ends (2)       take leave of a client
    owner  epoch (8) | name
    name   length (2) | text
    place  an offset; or -1 - (batches back << 32 | index), of what was placed in this batch or in
           an earlier one of the same submitter
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from perdure.errors import StorageCorrupt
from perdure.model import InboxEntry
from perdure.storage import operations as op
from perdure.storage.batch_places import GivenOffsets, Places
from perdure.storage.codec import (
    decode_cursor,
    decode_entry,
    decode_group,
    decode_message,
    decode_session,
    decode_subscription,
    encode_cursor,
    encode_entry,
    encode_message,
    encode_record,
)
from perdure.storage.peer_operations import (
    Dismiss,
    Echo,
    PassMessage,
    PassShare,
    ReturnUnseen,
    Speak,
)

PUT_CURSOR: Final = 3
PUT_AWAITING: Final = 6
DELETE_AWAITING: Final = 7
PUT_RETAINED: Final = 16
RETAIN_APPENDED: Final = 17
"""A retained message that the batch appends: it has no row in the table."""
SPEAK: Final = 21

_LENGTH: Final = struct.Struct(">H")
_SIZE: Final = struct.Struct(">I")
_OFFSET: Final = struct.Struct(">q")

_Encode: TypeAlias = Callable[[Any, Places], bytes]
_Decode: TypeAlias = Callable[[bytes, GivenOffsets], op.Operation]
_Row: TypeAlias = tuple[int, type[op.Operation], _Encode, _Decode]
"""Kind, class, to bytes, from bytes."""


def _slice(value: bytes, at: int, length: int) -> bytes:
    if at + length > len(value):
        raise StorageCorrupt("a batch is cut short")
    return value[at : at + length]


def encode_name(text: str) -> bytes:
    raw = text.encode()
    return _LENGTH.pack(len(raw)) + raw


def _read_name(value: bytes, at: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(value, at)
    at += _LENGTH.size
    return _slice(value, at, length).decode(), at + length


def _owner(operation: op.Operation) -> bytes:
    return _OFFSET.pack(operation.epoch) + encode_name(operation.client_id)


def _read_owner(body: bytes) -> tuple[str, int, bytes]:
    """Client id, epoch, and what follows."""
    client_id, at = _read_name(body, _OFFSET.size)
    return client_id, _OFFSET.unpack_from(body)[0], body[at:]


def _read_named(body: bytes) -> tuple[str, bytes]:
    """A name, and what follows."""
    name, at = _read_name(body, 0)
    return name, body[at:]


def _record(record: Any, _: Places) -> bytes:
    return encode_record(record)


_Value: TypeAlias = tuple[Callable[[Any, Places], bytes], Callable[[bytes, GivenOffsets], Any]]
"""What follows a name: to bytes, and from bytes."""

_CURSOR: Final[_Value] = (
    lambda cursor, _: encode_cursor(cursor),
    lambda raw, _: decode_cursor(raw),
)
_SUBSCRIPTION: Final[_Value] = (_record, lambda raw, _: decode_subscription(raw))
_PACKET_ID: Final[_Value] = (
    lambda packet_id, _: _LENGTH.pack(packet_id),
    lambda raw, _: _LENGTH.unpack(raw)[0],
)
_THROUGH: Final[_Value] = (
    lambda offset, _: _OFFSET.pack(offset),
    lambda raw, _: _OFFSET.unpack(raw)[0],
)
_TEXT: Final[_Value] = (lambda text, _: text.encode(), lambda raw, _: raw.decode())
_ENTRY: Final[_Value] = (
    lambda entry, places: places.pack(entry) + encode_entry(entry),
    lambda raw, given: decode_entry(given.unpack(raw), raw[_OFFSET.size :]),
)
_TOMBSTONE: Final[_Value] = (
    lambda entry, places: places.pack(entry) + encode_entry(op.tombstone(entry)),
    _ENTRY[1],
)
_FLAG: Final[_Value] = (
    lambda flag, _: _LENGTH.pack(flag),
    lambda raw, _: bool(_LENGTH.unpack(raw)[0]),
)
_SHARE: Final[_Value] = (
    lambda entry, _: encode_entry(entry),
    lambda raw, _: decode_entry(0, raw),
)
_PLACE: Final[_Value] = (
    lambda entry, places: places.pack(entry),
    lambda raw, given: InboxEntry(given.unpack(raw), None, qos=1),
)


def _whole(kind: int, make: Any, attribute: str, value: _Value) -> _Row:
    """An operation that is its value."""
    pack, unpack = value
    return (
        kind,
        make,
        lambda o, places: pack(getattr(o, attribute), places),
        lambda body, given: make(unpack(body, given)),
    )


def _of_session(kind: int, make: Any, attribute: str, value: _Value) -> _Row:
    """An operation of a session's owner."""
    pack, unpack = value

    def decode(body: bytes, given: GivenOffsets) -> op.Operation:
        client_id, epoch, rest = _read_owner(body)
        operation: op.Operation = make(client_id, epoch, unpack(rest, given))
        return operation

    return kind, make, lambda o, places: _owner(o) + pack(getattr(o, attribute), places), decode


def _of_group(kind: int, make: Any, attribute: str, value: _Value) -> _Row:
    """An operation of a group."""
    pack, unpack = value

    def decode(body: bytes, given: GivenOffsets) -> op.Operation:
        group_key, rest = _read_named(body)
        operation: op.Operation = make(group_key, unpack(rest, given))
        return operation

    return (
        kind,
        make,
        lambda o, places: encode_name(o.group_key) + pack(getattr(o, attribute), places),
        decode,
    )


def _owned(kind: int, make: Any) -> _Row:
    """An operation of a session's owner without a value."""

    def decode(body: bytes, _: GivenOffsets) -> op.Operation:
        client_id, epoch, _rest = _read_owner(body)
        operation: op.Operation = make(client_id, epoch)
        return operation

    return kind, make, lambda o, _: _owner(o), decode


def _encode_group_entry(operation: Any, places: Places) -> bytes:
    return encode_name(operation.group_key) + _owner(operation) + _ENTRY[0](operation.entry, places)


def _decode_group_entry(body: bytes, given: GivenOffsets) -> op.Operation:
    group_key, rest = _read_named(body)
    client_id, epoch, rest = _read_owner(rest)
    return op.PutGroupEntry(group_key, _ENTRY[1](rest, given), client_id, epoch)


def _cleared(topic: str, publisher: bytes) -> op.Operation:
    return op.DeleteRetained(topic, publisher.decode())


def _passed(body: bytes) -> op.Operation:
    topic, raw = _read_named(body[_SIZE.size :])
    return PassMessage(decode_message(topic, 0, raw, 0), _SIZE.unpack_from(body)[0])


def _spoken(body: bytes) -> op.Operation:
    client_id, epoch, _ = _read_owner(body[4:])
    return Speak(client_id, epoch, _SIZE.unpack_from(body)[0])


def _encode_retained(operation: Any, places: Places) -> bytes:
    message = operation.message
    return encode_name(message.topic) + places.pack(message) + encode_message(message)


def _decode_retained(body: bytes, given: GivenOffsets) -> op.Operation:
    topic, rest = _read_named(body)
    return op.PutRetained(decode_message(topic, given.unpack(rest), rest, _OFFSET.size))


def _encode_claim(operation: Any, _: Places) -> bytes:
    return _OFFSET.pack(operation.seen) + encode_record(operation.record)


def _decode_claim(body: bytes, _: GivenOffsets) -> op.Operation:
    seen: int = _OFFSET.unpack_from(body)[0]
    return op.ClaimSession(decode_session(body[_OFFSET.size :]), seen)


def _decode_echo(body: bytes, _: GivenOffsets) -> op.Operation:
    node, at = _read_name(body, _OFFSET.size)
    return Echo(node, body[at:].decode(), _OFFSET.unpack_from(body)[0])


_TABLE: Final[tuple[_Row, ...]] = (
    _whole(1, op.PutSession, "record", (_record, lambda raw, _: decode_session(raw))),
    _owned(2, op.DiscardSession),
    _of_session(PUT_CURSOR, op.PutCursor, "cursor", _CURSOR),
    _of_session(4, op.PutSubscription, "sub", _SUBSCRIPTION),
    _of_session(5, op.DeleteSubscription, "sub", _SUBSCRIPTION),
    _of_session(PUT_AWAITING, op.PutAwaitingRelease, "packet_id", _PACKET_ID),
    _of_session(DELETE_AWAITING, op.DeleteAwaitingRelease, "packet_id", _PACKET_ID),
    _of_session(8, op.PutInbox, "entry", _ENTRY),
    _of_session(9, op.TrimInbox, "through_offset", _THROUGH),
    (
        10,
        op.PutGroup,
        lambda o, _: _OFFSET.pack(o.seen) + encode_record(o.record),
        lambda body, _: op.PutGroup(decode_group(body[8:]), _OFFSET.unpack_from(body)[0]),
    ),
    _whole(11, op.DiscardGroup, "group_key", _TEXT),
    _of_group(12, op.PutGroupMember, "member", _TEXT),
    _of_group(13, op.DeleteGroupMember, "member", _TEXT),
    (14, op.PutGroupEntry, _encode_group_entry, _decode_group_entry),
    _of_group(15, op.DeleteGroupEntry, "entry", _PLACE),
    (PUT_RETAINED, op.PutRetained, _encode_retained, _decode_retained),
    (
        18,
        op.DeleteRetained,
        lambda o, _: encode_name(o.topic) + o.publisher.encode(),
        lambda body, _: _cleared(*_read_named(body)),
    ),
    _of_session(19, op.PutTombstone, "entry", _TOMBSTONE),
    (20, op.ClaimSession, _encode_claim, _decode_claim),
    (SPEAK, Speak, lambda o, _: _SIZE.pack(o.after) + _owner(o), lambda body, _: _spoken(body)),
    (
        22,
        PassMessage,
        lambda o, _: _SIZE.pack(o.after) + encode_name(o.message.topic) + encode_message(o.message),
        lambda body, _: _passed(body),
    ),
    _of_session(23, PassShare, "entry", _SHARE),
    _of_session(24, ReturnUnseen, "after_offset", _THROUGH),
    _of_session(26, Dismiss, "ends", _FLAG),
    (
        25,
        Echo,
        lambda o, _: _OFFSET.pack(o.number) + encode_name(o.node) + o.asker.encode(),
        _decode_echo,
    ),
)
ENCODERS: Final = {cls: (kind, to_bytes) for kind, cls, to_bytes, _ in _TABLE}
DECODERS: Final = {kind: from_bytes for kind, _, _, from_bytes in _TABLE}
