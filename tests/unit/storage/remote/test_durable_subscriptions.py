"""Who wants a message: the index of all durable subscriptions against asking each of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.model import BackfillProgress, Message, Subscription
from perdure.storage.remote.durable_subscriptions import DurableSubscriptions
from perdure.topic.matching import matches

FILTERS = st.sampled_from(["a", "a/b", "a/+", "+/b", "#", "a/#", "+"])
CLIENTS = st.sampled_from(["c1", "c2", "c3"])
SUBS = st.builds(
    Subscription,
    FILTERS,
    qos=st.integers(0, 2),
    no_local=st.booleans(),
    retain_as_published=st.booleans(),
    identifier=st.integers(0, 3),
    since_offset=st.integers(0, 2),
    until_offset=st.sampled_from([0, 0, 5]),
    backfill=st.sampled_from([None, None, BackfillProgress(True, "", 0, 0)]),
    group=st.sampled_from(["", "", "g"]),
)
STEPS = st.lists(st.tuples(st.sampled_from(["put", "put", "remove", "discard"]), CLIENTS, SUBS))


@given(STEPS, st.sampled_from(["a", "a/b", "a/b/c", "b"]), st.integers(1, 2), CLIENTS)
def test_it_finds_whoever_wants_a_message(
    steps: list[tuple[str, str, Subscription]], topic: str, qos: int, publisher: str
) -> None:
    durable = DurableSubscriptions()
    held: dict[str, dict[tuple[int, str], Subscription]] = {}
    for step, client_id, sub in steps:
        mine = held.setdefault(client_id, {})
        key = (sub.since_offset, sub.name)
        if step == "put":
            durable.put(client_id, sub)
            mine[key] = sub
        elif step == "remove":
            durable.remove(client_id, sub)
            mine.pop(key, None)
        else:
            durable.discard(client_id)
            held[client_id] = {}
    message = Message(topic, b"", qos, True, publisher, offset=10)
    expected = {}
    for client_id, subs in held.items():
        found = [
            sub
            for sub in subs.values()
            if matches(sub.filter, topic)
            and not (sub.group or sub.backfill or sub.until_offset)
            and not (sub.no_local and client_id == publisher)
        ]
        granted = max((min(sub.qos, qos) for sub in found), default=0)
        if granted:
            retain = any(sub.retain_as_published for sub in found if sub.qos)
            expected[client_id] = (granted, retain)
    deliveries = durable.deliveries(message)
    assert {name: (options.qos, options.retain) for name, options in deliveries} == expected
    assert len(deliveries) == len(expected)


def test_an_index_that_is_emptied_holds_nothing() -> None:
    durable = DurableSubscriptions()
    sub = Subscription("a/+", qos=1)
    assert durable.put("c", sub)
    assert len(durable) == 1
    durable.remove("c", sub)
    assert len(durable) == 0
    assert durable.deliveries(Message("a/b", b"", 1)) == []
