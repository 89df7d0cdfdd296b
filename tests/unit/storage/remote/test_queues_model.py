"""A session's queue against the log: both give the session the same messages, in one order.

What a session is owed is counted from the log by its subscriptions. The queue was filled when the
messages were appended, by subscriptions as they were then. The fence is what was dispatched: a
subscription begins there, though later messages may be recorded already.
"""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.model import Cursor, Message, SessionRecord, Subscription
from perdure.session.pending import PendingMessages
from perdure.session.subscriptions import SessionSubscriptions
from perdure.storage.batch import Batch
from perdure.storage.remote.store import RemoteDatabase
from tests.support.remote import MemoryDriver, ServerState

NOW_US = 1_700_000_000_000_000
TOPICS = st.sampled_from(["a", "a/b", "b"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), TOPICS, st.integers(0, 2)),
        st.tuples(st.just("publish"), TOPICS, st.integers(1, 2)),
        st.tuples(st.just("subscribe"), st.sampled_from(["a", "#", "a/+", "b"]), st.integers(0, 2)),
        st.tuples(st.just("unsubscribe"), st.sampled_from(["a", "#", "a/+", "b"]), st.just(0)),
        st.tuples(st.just("dispatch"), st.just(""), st.just(0)),
        st.tuples(st.just("settle"), st.just(""), st.integers(0, 5)),
        st.tuples(st.just("write"), st.just(""), st.just(0)),
        st.tuples(st.just("restart"), st.just(""), st.just(0)),
    ),
    max_size=40,
)


class Machine:
    """One session, as the broker would keep it."""

    def __init__(self, queue_max: int) -> None:
        self.state = ServerState()
        self.queue_max = queue_max
        self.fence = 0
        self.acked = 0
        self.subs: dict[str, Subscription] = {}
        self.ended: list[Subscription] = []

    async def start(self) -> None:
        driver = MemoryDriver(self.state, queue_max=self.queue_max)
        self.database = await RemoteDatabase.open(driver, now_us=NOW_US)
        self.batch = Batch()

    async def begin(self) -> None:
        await self.start()
        self.batch.put_session(SessionRecord("c", 1, 0, 60, True, 0))

    def publish(self, topic: str, qos: int) -> None:
        publisher = "c" if qos == 2 else "other"
        message = Message(topic, b"x", qos, publisher=publisher, published_at_us=NOW_US)
        self.batch.append(message)

    def subscribe(self, topic_filter: str, qos: int) -> None:
        self.end(topic_filter)
        sub = Subscription(topic_filter, qos=qos, no_local=qos == 1, since_offset=self.fence)
        self.subs[topic_filter] = sub
        self.batch.put_subscription("c", sub, epoch=1)

    def end(self, topic_filter: str) -> None:
        sub = self.subs.pop(topic_filter, None)
        if sub is None:
            return
        if sub.since_offset < self.fence and self.acked < self.fence:
            ended = msgspec.structs.replace(sub, until_offset=self.fence)
            self.ended.append(ended)
            self.batch.put_subscription("c", ended, epoch=1)
        else:
            self.batch.delete_subscription("c", sub, epoch=1)

    def write(self) -> None:
        self.database.submit(self.batch, NOW_US)
        self.batch = Batch()

    def settle(self, back: int) -> None:
        """Everything up to about the fence is acknowledged."""
        self.acked = max(self.acked, self.fence - back)
        self.batch.put_cursor("c", Cursor(offset=self.acked), epoch=1)
        for sub in [sub for sub in self.ended if sub.until_offset <= self.acked]:
            self.ended.remove(sub)
            self.batch.delete_subscription("c", sub, epoch=1)

    async def owed(self) -> tuple[list[int], list[int]]:
        """By the log and by the queue, in pages of different sizes."""
        subscriptions = SessionSubscriptions("c", [*self.subs.values(), *self.ended])
        last = self.database.last_offset
        log = await self.database.read(
            ["#"], after_offset=self.acked, until_offset=last, limit=1000
        )
        queued: list[Message] = []
        after = self.acked
        while after < last:
            page = await self.database.read_queue(
                "c", after_offset=after, until_offset=last, limit=2, bytes_max=0
            )
            assert page.through_offset > after
            queued += page.messages
            after = page.through_offset
        return _pending(subscriptions, log.messages), _pending(subscriptions, queued)


def _pending(subscriptions: SessionSubscriptions, messages: list[Message]) -> list[int]:
    return [each.offset for each in PendingMessages(subscriptions, 0).page(messages, [])]


async def play(steps: list[tuple[str, str, int]], queue_max: int) -> None:
    machine = Machine(queue_max)
    await machine.begin()
    for step, text, number in steps:
        if step == "publish":
            machine.publish(text, number)
        elif step == "subscribe":
            machine.subscribe(text, number)
        elif step == "unsubscribe":
            machine.end(text)
        elif step == "settle":
            machine.settle(number)
        else:
            machine.write()
            if step == "dispatch":
                machine.fence = machine.database.last_offset
            elif step == "restart":
                await machine.database.stop()
                await machine.start()
                machine.fence = machine.database.last_offset
    machine.write()
    by_log, by_queue = await machine.owed()
    assert by_queue == by_log
    await machine.database.stop()


@pytest.mark.parametrize("queue_max", [65_000, 3, 0])
@settings(
    max_examples=150,
)
@given(steps=STEPS)
def test_queue_and_log_agree(queue_max: int, steps: list[tuple[str, str, int]]) -> None:
    asyncio.run(play(steps, queue_max))
