"""Packet identifiers as a new owner of a queue needs them.

A client that resumes its session may be in the middle of an exchange, so an entry keeps the
identifier that it has. Three things cannot stay: an entry without any (the schema of TBMQ 1.x
allows NULL), an identifier that stands twice where the new store has one place for each, and a
second PUBREL of one identifier, which the client answers once.

Invariant: identifiers that are made up here are carried by no other entry of the queue, and new
messages are numbered after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from perdure.session.seqno import PACKET_IDS, packet_id_of

NONE: Final = 0


class Resolved(msgspec.Struct, frozen=True):
    """Identifiers of a whole queue.

    Attributes:
        identifiers: one for each entry; 0 = it is left out.
        last_packet_id: after which new messages are numbered; 0 = none was ever given.
        renumbered: entries whose identifier is not the one they had.
        repeated: entries left out.
    """

    identifiers: list[int]
    last_packet_id: int
    renumbered: int
    repeated: int


def resolve(
    identifiers: Sequence[int], released: Sequence[bool], *, last_packet_id: int, unique: bool
) -> Resolved:
    """Give every entry of a queue the identifier that it will have.

    Args:
        identifiers: in queue order; 0 = the entry has none.
        released: whether each is past its PUBREC; as long.
        last_packet_id: as stored; 0 = unknown.
        unique: the new store holds an identifier once. The first entry that has it keeps it,
            but a PUBREL goes before any PUBLISH: its client has state under that number.
    """
    last = last_packet_id or next((each for each in reversed(identifiers) if each), NONE)
    used = set(identifiers)
    pubrels = {each for each, is_pubrel in zip(identifiers, released, strict=True) if is_pubrel}
    pubrels_given: set[int] = set()
    given: set[int] = set()
    found: list[int] = []
    renumbered = repeated = previous = 0
    for identifier, is_pubrel in zip(identifiers, released, strict=True):
        kept = identifier
        if is_pubrel:
            if not identifier or identifier in pubrels_given:
                found.append(NONE)
                repeated += 1
                continue
            pubrels_given.add(identifier)
        elif not identifier or (unique and (identifier in given or identifier in pubrels)):
            kept = _spare(previous, last, used)
            used.add(kept)
            renumbered += 1
            if kept == packet_id_of(last + 1):
                last = kept
        given.add(kept)
        found.append(kept)
        previous = kept
    return Resolved(found, last, renumbered, repeated)


def _spare(previous: int, last: int, used: set[int]) -> int:
    """An identifier that nobody has: the next one, so that a serial number need not leap, or else
    the first after the last."""
    following = packet_id_of(previous + 1)
    if following not in used:
        return following
    for step in range(1, PACKET_IDS + 1):
        following = packet_id_of(last + step)
        if following not in used:
            break
    return following
