"""Pages of both sources; what is made of them is in ``tests/model/test_pending.py``."""

from __future__ import annotations

from perdure.limits import OFFSET_MAX
from perdure.model import InboxEntry, Message, SessionRecord, Subscription
from perdure.session.pending_pages import read_page
from perdure.session.subscriptions import SessionSubscriptions
from perdure.storage.memory import MemoryDatabase
from tests.support.staged import Staged

NOW_US = 1_700_000_000_000_000


async def test_a_full_page_of_entries_ends_the_page_of_messages() -> None:
    database = MemoryDatabase()
    batch = Staged(database)
    batch.put_session(
        SessionRecord(
            "c", epoch=1, created_at_us=NOW_US, expiry_s=3600, connected=False, changed_at_us=NOW_US
        )
    )
    batch.put_subscription("c", Subscription("t", qos=1), epoch=1)
    offsets = [batch.append(Message("t", b"m", 1), NOW_US + n * 10) for n in range(6)]
    for offset in offsets[:4]:
        batch.put_inbox("c", InboxEntry(offset + 1, Message("i", b"", 1), qos=1), epoch=1)
    batch.write()

    async def page(*, durable: bool, after: int) -> tuple[list[int], list[int], int]:
        found = await read_page(
            database,
            SessionSubscriptions("c", [Subscription("t", qos=1)]),
            durable=durable,
            after=after,
            until=database.last_offset,
            chunk=3,
            bytes_max=10_000,
        )
        return (
            [message.offset for message in found.messages],
            [entry.offset for entry in found.entries],
            found.through,
        )

    messages, entries, through = await page(durable=True, after=0)
    assert through < OFFSET_MAX
    assert all(offset <= through for offset in messages + entries)
    rest, more, end = await page(durable=True, after=through)
    assert messages + rest == offsets[: len(messages + rest)]
    assert entries + more == [offset + 1 for offset in offsets[:4]][: len(entries + more)]
    assert end > through
    alone, none, _ = await page(durable=False, after=0)
    assert (alone, none) == (offsets[:3], [])
