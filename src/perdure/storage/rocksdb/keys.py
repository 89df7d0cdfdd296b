"""The keys of every table but the log's own, drawn.

Integers are big-endian, so byte order is number order. ``id`` is length (2) and UTF-8 bytes: no
identifier is a prefix of another one's rows, and none is hashed.

::

    table      key                                        value
    default    "F"                                        format: version, database id, created
               "H"                                        high marks (marks.py), in every batch
               "G" generation (4)                         generation header
               "N" generation (4)                         its counters
               "P" generation (4) offset (8)              count of messages when it was reached
               "R" key to the end                         note of who applies a shared log
               "T" generation (4) node (8)                node of the learned topic structure
               "X" generation (4)                         dropped: its tables may still be there
    state      "s" client id to the end                   session record
               "d" deadline (8) client id to the end      (empty)
               "x" id "c"                                 cursor
               "x" id "r" packet identifier (2)           (empty): awaiting release
               "x" id "u" since (8) name to the end       subscription
               "f" key of storage.subscribers, since (8)  (empty): a subscription that holds
               "g" id                                     group record
               "m" id client id to the end                (empty): member
    inbox      "S" id offset (8)                          entry of a session's private stream, or a
                                                          run of them, by the last (entry_run.py)
               "S" id offset (8) 0x00                     tombstone for the entry at an offset
               "G" id offset (8)                          entry returned to a group
    retained   levels joined by 0x00                      message; byte order is level order

Pure functions of their arguments.
"""

from __future__ import annotations

import struct
from typing import Final

from perdure.model import Subscription
from perdure.storage.subscribers import Subscriber, parse_subscriber, subscriber_key

FORMAT: Final = b"F"
HIGH: Final = b"H"
NOTE: Final = b"R"
"""Prefix of what is noted beside the state (``storage.notes``)."""

IDENTITY: Final = (FORMAT, HIGH)
"""Bounds of the rows that say what the database is, and what its generations are."""

TOPICS: Final = (b"T", b"U")
"""Bounds of the rows that say what topics the streams of all generations are."""

TOMBSTONE: Final = b"\0"
"""End of the key of a tombstone: the entry itself may stand in a run."""

_pack_number: Final = struct.Struct(">I").pack
_pack_length: Final = struct.Struct(">H").pack
_pack_offset: Final = struct.Struct(">Q").pack


def generation_header(generation: int) -> bytes:
    """Key of a generation's header."""
    return b"G" + _pack_number(generation)


def generation_counters(generation: int) -> bytes:
    """Key of a generation's counters."""
    return b"N" + _pack_number(generation)


def generation_points(generation: int) -> bytes:
    """Prefix of a generation's sparse counts."""
    return b"P" + _pack_number(generation)


def generation_point(generation: int, offset: int) -> bytes:
    """Key of one sparse count."""
    return b"P" + _pack_number(generation) + _pack_offset(offset)


def generation_nodes(generation: int) -> bytes:
    """Prefix of the nodes of a generation's topic structure."""
    return b"T" + _pack_number(generation)


def generation_node(generation: int, node: int) -> bytes:
    """Key of one node of a generation's topic structure."""
    return b"T" + _pack_number(generation) + _pack_offset(node)


def generation_dropped(generation: int) -> bytes:
    """Key of the mark that a generation was dropped."""
    return b"X" + _pack_number(generation)


def session(client_id: str) -> bytes:
    """Key of a session's record."""
    return b"s" + client_id.encode()


def deadline(deadline_us: int, client_id: str) -> bytes:
    """Key of an entry of the deadline index."""
    return b"d" + _pack_offset(deadline_us) + client_id.encode()


def parse_deadline(key: bytes) -> tuple[int, str]:
    """Deadline and client id of an entry of the deadline index."""
    return int.from_bytes(key[1:9]), key[9:].decode()


def session_rows(client_id: str) -> bytes:
    """Prefix of a session's rows in the state table, but its record."""
    return _owner(b"x", client_id)


def group(group_key: str) -> bytes:
    """Key of a group's record."""
    return _owner(b"g", group_key)


def group_members(group_key: str) -> bytes:
    """Prefix of a group's members."""
    return _owner(b"m", group_key)


def session_inbox(client_id: str) -> bytes:
    """Prefix of a session's private stream."""
    return _owner(b"S", client_id)


def group_inbox(group_key: str) -> bytes:
    """Prefix of what was returned to a group."""
    return _owner(b"G", group_key)


def owner_of(key: bytes) -> bytes:
    """The prefix that all rows of one owner share, of a key of kind x, g, m, S or G."""
    return key[: 3 + int.from_bytes(key[1:3])]


def offset_of(key: bytes) -> int:
    """The offset in the key of an entry, a run or a tombstone (kinds S and G)."""
    at = len(owner_of(key))
    return int.from_bytes(key[at : at + 8])


def cursor(rows: bytes) -> bytes:
    """Key of a cursor, from ``session_rows``."""
    return rows + b"c"


def awaiting_release(rows: bytes, packet_id: int) -> bytes:
    """Key of an inbound QoS 2 packet identifier, from ``session_rows``."""
    return rows + b"r" + _pack_length(packet_id)


def subscription(rows: bytes, since_offset: int, name: str) -> bytes:
    """Key of a subscription, from ``session_rows``."""
    return rows + b"u" + _pack_offset(since_offset) + name.encode()


def filters() -> tuple[bytes, bytes]:
    """Bounds of the index of subscriptions by filter."""
    return b"f", b"g"


def subscriber(topic_filter: str, client_id: str, name: str, since_offset: int) -> bytes:
    """Key of an entry of the index of subscriptions by filter."""
    return b"f" + subscriber_key(topic_filter, client_id, name) + _pack_offset(since_offset)


def subscriber_of(client_id: str, sub: Subscription) -> bytes:
    """``subscriber`` of a subscription."""
    return subscriber(sub.filter, client_id, sub.name, sub.since_offset)


def parse_subscriber_row(key: bytes) -> tuple[str, Subscriber, int]:
    """Topic filter, subscription and ``since_offset`` of an entry of that index.

    Raises:
        StorageCorrupt: it is none.
    """
    end = len(key) - 8
    # Compiled, a slice that ends before it begins is no empty one.
    topic_filter, found = parse_subscriber(key[1:end] if end > 1 else b"")
    return topic_filter, found, int.from_bytes(key[-8:])


def parse_subscription(rows: bytes, key: bytes) -> tuple[int, str]:
    """``since_offset`` and name of a subscription's key, from ``session_rows``."""
    at = len(rows) + 1
    return int.from_bytes(key[at : at + 8]), key[at + 8 :].decode()


def offset(prefix: bytes, value: int) -> bytes:
    """A prefix followed by an offset; bounds below 0 mean 0, where nothing is stored."""
    return prefix + _pack_offset(max(0, value))


def _owner(kind: bytes, identifier: str) -> bytes:
    encoded = identifier.encode()
    return b"%b%b%b" % (kind, len(encoded).to_bytes(2, "big"), encoded)
