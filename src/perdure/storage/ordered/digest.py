"""What a node's store says, in one number: the same for all nodes at one position of the log.

Everything that the log decides is in it: sessions with cursors, subscriptions, packet identifiers
and private streams, groups, retained messages, the last offset, the members and what is noted of
them. Messages of the log are not, nor generations: how long they are kept is each node's business.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Final

from perdure.model import InboxEntry
from perdure.model.reserved import RESERVED
from perdure.storage.codec import encode_cursor, encode_entry, encode_record, encode_retained
from perdure.storage.notes import RESTORED
from perdure.storage.ordered.local import Local
from perdure.storage.retained_pages import all_retained

_PAGE: Final = 1000
_ALL: Final = 2**63 - 1
# A leading wildcard does not match what begins with a dollar sign.
_RETAINED: Final = ("#", "$SYS/#", *(f"{prefix}#" for prefix in RESERVED))


async def digest(local: Local) -> str:
    """Read all of a store; nothing may be applied meanwhile.

    Returns:
        32 hexadecimal digits.
    """
    found = hashlib.blake2b(digest_size=16)
    async for part in _parts(local):
        # A length before each: what is in one part can't be taken for the beginning of the next.
        found.update(len(part).to_bytes(8, "big"))
        found.update(part)
    return found.hexdigest()


async def _parts(local: Local) -> AsyncIterator[bytes]:
    yield local.last_offset.to_bytes(8, "big")
    for key, value in local.notes():
        if key == RESTORED:
            continue
        yield key
        yield value
    async for record in local.sessions():
        stored = await local.open_session(record.client_id)
        assert stored is not None
        yield encode_record(stored.record)
        yield encode_cursor(stored.cursor)
        for sub in stored.subscriptions:
            yield encode_record(sub)
        yield repr(stored.awaiting_release).encode()
        async for part in _inbox(local, record.client_id, stored.cursor.offset):
            yield part
    for group in await local.groups():
        yield encode_record(group)
        for member in await local.group_members(group.key):
            yield member.encode()
        after = 0
        while entries := await local.read_group_entries(group.key, limit=_PAGE, after_offset=after):
            for entry in entries:
                yield _entry(entry)
            after = entries[-1].offset
    for topic_filter in _RETAINED:
        async for message in all_retained(local, topic_filter, page=_PAGE):
            yield message.topic.encode()
            yield encode_retained(message)


async def _inbox(local: Local, client_id: str, after: int) -> AsyncIterator[bytes]:
    """What is owed; of what was trimmed each node has its own rest."""
    while entries := await local.read_inbox(
        client_id, after_offset=after, until_offset=_ALL, limit=_PAGE
    ):
        for entry in entries:
            yield _entry(entry)
        after = entries[-1].offset


def _entry(entry: InboxEntry) -> bytes:
    return entry.offset.to_bytes(8, "big") + encode_entry(entry)
