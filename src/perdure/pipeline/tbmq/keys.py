"""TBMQ 2.x's key names, and the names of its shared queues.

::

    <prefix>{<client id>}_messages               sorted set of full key names of messages
    <prefix>{<client id>}_messages_<packet id>   a message
    <prefix>{<client id>}_last_packet_id         decimal text

A client id may hold braces, spaces, slashes, even ``_messages``: what is anchored is the prefix,
which has to be given, and the end of the name.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from perdure.errors import MqttError
from perdure.limits import PACKET_ID_MAX
from perdure.pipeline.tbmq.message_json import LEVELS_MAX
from perdure.topic.names import validate_topic_filter

_MESSAGES: Final = b"}_messages"
_LAST: Final = b"}_last_packet_id"
_SHARED: Final = "ss_"


def messages_key(prefix: str, client_id: str) -> bytes:
    """The sorted set of a client."""
    return f"{prefix}{{{client_id}".encode() + _MESSAGES


def last_packet_id_key(prefix: str, client_id: str) -> bytes:
    """The key of a client's last packet identifier."""
    return f"{prefix}{{{client_id}".encode() + _LAST


def scan_pattern(prefix: str, *, messages: bool) -> bytes:
    """The SCAN pattern of one kind of key; what it finds has still to be looked at."""
    escaped = "".join(f"\\{each}" if each in "*?[]\\^-" else each for each in prefix)
    return f"{escaped}{{*".encode() + (_MESSAGES if messages else _LAST)


def client_of(key: bytes, prefix: str) -> str | None:
    """Whose sorted set or last packet identifier a key is; None if it is neither, or its client
    id is no UTF-8."""
    head = prefix.encode() + b"{"
    for end in (_MESSAGES, _LAST):
        if key.startswith(head) and key.endswith(end) and len(key) >= len(head) + len(end):
            try:
                return key[len(head) : -len(end)].decode()
            except UnicodeDecodeError:
                return None
    return None


def packet_id_of_member(member: bytes) -> int:
    """The packet identifier at the end of a member; 0 if there is none."""
    digits = member[member.rfind(b"_") + 1 :]
    if not digits.isdigit() or len(digits) > 5:
        return 0
    packet_id = int(digits)
    return packet_id if packet_id <= PACKET_ID_MAX else 0


def parse_last_packet_id(value: bytes | None) -> int:
    """A stored last packet identifier; 0 = none, or nothing that could be one."""
    if value is None or not value.isdigit() or len(value) > 5:
        return 0
    packet_id = int(value)
    return packet_id if packet_id <= PACKET_ID_MAX else 0


def parse_shared(client_id: str, known: Collection[tuple[str, str]] = ()) -> tuple[str, str] | None:
    """The share name and topic filter of a shared queue, ``ss_<share>_<filter>``.

    Args:
        client_id: what stands between the braces, or in the column.
        known: share names and filters that exist: they tell where a share name ends that has an
            underscore in it. Otherwise it ends at the first.

    Returns:
        None if it is the queue of a client.
    """
    if not client_id.startswith(_SHARED):
        return None
    for share, topic_filter in known:
        if client_id == f"{_SHARED}{share}_{topic_filter}":
            return share, topic_filter
    share, separator, topic_filter = client_id[len(_SHARED) :].partition("_")
    if not share or not separator:
        return None
    try:
        validate_topic_filter(topic_filter, levels_max=LEVELS_MAX)
    except MqttError:
        return None
    return share, topic_filter
