"""The disk budget: what is refused, what is dropped, who loses what, and who is told."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from perdure.broker.retention.disk_budget import DiskBudget, generation_bytes_max
from perdure.config.schema import GIB, MIB, Config, RetentionConfig
from perdure.model import SessionRecord
from perdure.mqtt.encode import properties_from_forward
from perdure.mqtt.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, Ack, Publish
from tests.support.sim_broker import SimBroker
from tests.support.storage import FaultyDatabase
from tests.unit.broker.harness import (
    BACKLOG,
    QUIET,
    Client,
    make_sim,
    publish_many,
    read_slowly,
)

T = TypeVar("T")


def disk_budget(sim: SimBroker) -> DiskBudget:
    """Another budget of the broker that runs."""
    services = sim.live.services
    return DiskBudget(
        services,
        publish_path=services.publish_path,
        registry=services.registry,
        shared_subscriptions=services.shared_subscriptions,
        window_waiters=services.window_waiters,
    )


def _publisher(sim: SimBroker) -> Client:
    publisher = Client(sim, "p")
    publisher.connect(expiry_s=0, clean=True)
    return publisher


def dropped(message: Publish) -> int:
    """How many messages were dropped before this one, as it says."""
    found = dict(properties_from_forward(message.forward).user_properties)
    return int(found.get("perdure-dropped", 0))


def awaited(sim: SimBroker, work: Coroutine[Any, Any, T]) -> T:
    """Run something to its end in virtual time; what it returns."""
    results: list[T] = []

    async def run() -> None:
        results.append(await work)

    assert sim.scheduler is not None
    sim.scheduler.run(run())
    return results[0]


def record(sim: SimBroker, client_id: str) -> SessionRecord:
    """What is stored of a session."""
    stored = awaited(sim, sim.store.open_session(client_id))
    assert stored is not None
    return stored.record


def drop_all(sim: SimBroker) -> int:
    """Rotate, and drop everything before as the budget does; returns what was lost."""
    sim.store.rotate(sim.clock.now_us())
    budget = disk_budget(sim)
    return sum(awaited(sim, budget.drop(info)) for info in sim.store.generations()[:-1])


def test_the_disk_budget_refuses() -> None:
    config = Config(
        sys=QUIET,
        retention=RetentionConfig(disk_bytes_max=1000, disk_policy="refuse", check_interval_s=1),
    )
    sim = make_sim(config=config)
    publisher = _publisher(sim)
    usage = [2000]
    sim.store.disk_bytes = lambda: usage[0]  # type: ignore[method-assign]
    sim.run_for(2_000_000)
    packet_id = publisher.publish("t")
    refused = publisher.take(Ack)
    assert (refused.kind, refused.packet_id, refused.reason) == (PUBACK, packet_id, 0x97)
    assert refused.properties is not None
    assert refused.properties.reason_string == "the broker's storage is full"
    assert sim.live.services.metrics.messages_dropped_quota == 1
    usage[0] = 10
    sim.run_for(2_000_000)
    publisher.deliver("t")
    assert sim.logged("disk.full")
    assert sim.logged("disk.recovered")


def test_the_disk_budget_holds_from_the_first_message_on() -> None:
    """Not only from the first look of the timer on."""
    config = Config(
        sys=QUIET,
        retention=RetentionConfig(disk_bytes_max=1000, check_interval_s=3600),
    )
    store = FaultyDatabase()
    store.disk_bytes = lambda: 2000  # type: ignore[method-assign]
    sim = make_sim(config=config, store=store)
    retention = sim.live.services.retention
    assert retention.disk_over == "2000 bytes of data, retention.disk_bytes_max is 1000"
    publisher = _publisher(sim)
    publisher.publish("t")
    assert publisher.take(Ack).reason == 0x97
    store.disk_bytes = lambda: 10  # type: ignore[method-assign]
    sim.run_for(3_600_000_000)
    assert retention.disk_over == ""
    publisher = _publisher(sim)
    publisher.deliver("t")


def test_the_disk_budget_drops_the_oldest_and_counts_it() -> None:
    config = Config(
        sys=QUIET,
        retention=RetentionConfig(
            disk_bytes_max=1000, disk_policy="drop_oldest", check_interval_s=1
        ),
    )
    sim = make_sim(config=config)
    publisher, reader = _publisher(sim), Client(sim, "r")
    reader.connect()
    reader.subscribe("t", qos=1)
    reader.cut()
    member = Client(sim, "m")
    member.connect()
    member.subscribe("$share/g/t", qos=1)
    publisher.deliver("t", b"taken by the group")
    assert member.payloads() == [b"taken by the group"]
    member.cut()
    for number in range(4):
        publisher.deliver("t", b"%d" % number)
    sim.store.rotate(sim.clock.now_us())
    publisher.deliver("t", b"4")
    sim.store.disk_bytes = (  # type: ignore[method-assign]
        lambda: 2000 if len(sim.store.generations()) > 1 else 10
    )
    sim.run_for(2_000_000)
    assert sim.live.services.metrics.messages_dropped_retention == 5 + 4
    reader.connect()
    message = reader.take(Publish)
    assert (message.payload, message.packet_id) == (b"4", 6)
    assert dropped(message) == 5
    member.connect()
    assert member.payloads() == [b"4"]
    (told,) = sim.logged("generation.dropped")
    assert (told["lost"], told["sessions"], told["reason"]) == (9, 1, "disk budget")
    assert sim.logged("group.lost_messages")[0]["lost"] == 4
    assert record(sim, "r").dropped_count == 5
    assert record(sim, "m").dropped_count == 0


def test_a_budget_that_nothing_can_hold_is_told_once() -> None:
    """The current generation stays, publishes are taken, and the log says it once."""
    config = Config(
        sys=QUIET,
        retention=RetentionConfig(
            disk_bytes_max=1000, disk_policy="drop_oldest", check_interval_s=1
        ),
    )
    sim = make_sim(config=config)
    publisher = _publisher(sim)
    usage = [5000]
    sim.store.disk_bytes = lambda: usage[0]  # type: ignore[method-assign]
    sim.run_for(5_000_000)
    (told,) = sim.logged("disk.full")
    assert (told["used_bytes"], told["policy"]) == (5000, "drop_oldest")
    publisher.deliver("t")
    usage[0] = 10
    sim.run_for(2_000_000)
    assert len(sim.logged("disk.recovered")) == 1
    usage[0] = 5000
    sim.run_for(2_000_000)
    assert len(sim.logged("disk.full")) == 2


def test_no_more_generations_go_than_the_excess_has() -> None:
    """Files may be deleted a little after their generation was dropped: the directory is not
    measured again before the next look."""
    config = Config(
        sys=QUIET,
        retention=RetentionConfig(
            disk_bytes_max=1 * MIB, disk_policy="drop_oldest", check_interval_s=1
        ),
    )
    sim = make_sim(config=config)
    publisher = _publisher(sim)
    for _ in range(4):
        publisher.deliver("t", b"x" * 1000)
        sim.store.rotate(sim.clock.now_us())
    size = sim.store.generations()[0].bytes
    sim.store.disk_bytes = lambda: 1 * MIB + size + 1  # type: ignore[method-assign]
    sim.run_for(1_500_000)
    assert [info.generation for info in sim.store.generations()] == [3, 4, 5]


def test_generations_are_small_enough_to_be_dropped_in_time() -> None:
    plain = RetentionConfig(generation_bytes=4 * GIB)
    assert generation_bytes_max(plain) == 4 * GIB
    refuse = RetentionConfig(generation_bytes=4 * GIB, disk_bytes_max=1 * GIB)
    assert generation_bytes_max(refuse) == 4 * GIB
    drops = RetentionConfig(
        generation_bytes=4 * GIB, disk_bytes_max=1 * GIB, disk_policy="drop_oldest"
    )
    assert generation_bytes_max(drops) == 128 * MIB
    config = Config(
        sys=QUIET,
        retention=RetentionConfig(
            disk_bytes_max=8000, disk_policy="drop_oldest", check_interval_s=1
        ),
    )
    sim = make_sim(config=config)
    publisher = _publisher(sim)
    sim.store.disk_bytes = (  # type: ignore[method-assign]
        lambda: sum(info.bytes for info in sim.store.generations())
    )
    for _ in range(40):
        publisher.deliver("t", b"x" * 600)
        sim.run_for(1_000_000)
    assert 4 <= len(sim.store.generations()) <= 9
    assert sim.store.disk_bytes() <= 8000 + 1000


def test_what_was_acknowledged_out_of_order_is_not_lost() -> None:
    sim = make_sim()
    publisher, reader = _publisher(sim), Client(sim, "r", acks=False)
    reader.connect()
    reader.subscribe("t", qos=1)
    for number in range(4):
        publisher.deliver("t", b"%d" % number)
    sim.run_for(50_000)
    ids = {message.payload: message.packet_id for message in reader.messages}
    reader.send(Ack(PUBACK, ids[b"1"]), Ack(PUBACK, ids[b"3"]))
    sim.run_for(500_000)
    reader.cut()
    assert drop_all(sim) == 2
    assert record(sim, "r").dropped_count == 2
    publisher.deliver("t", b"next")
    reader.connect()
    message = reader.take(Publish)
    assert (message.payload, message.packet_id, dropped(message)) == (b"next", 5, 2)


@pytest.mark.trap(13)
def test_an_exchange_past_its_pubrec_is_completed() -> None:
    """Trap 13: its message is gone, its PUBREL is not; and it is not counted as lost."""
    sim = make_sim()
    publisher, reader = _publisher(sim), Client(sim, "r", acks=False)
    reader.connect()
    reader.subscribe("t", qos=2)
    for number in range(3):
        publisher.deliver("t", b"%d" % number, qos=2)
    sim.run_for(50_000)
    ids = {message.payload: message.packet_id for message in reader.messages}
    reader.send(Ack(PUBREC, ids[b"1"]))
    assert reader.take(Ack) == Ack(PUBREL, ids[b"1"])
    reader.cut()
    assert drop_all(sim) == 2
    reader.connect()
    assert reader.take(Ack) == Ack(PUBREL, ids[b"1"])
    reader.send(Ack(PUBCOMP, ids[b"1"]))
    sim.run_for(50_000)
    reader.none_comes()
    publisher.deliver("t", b"next", qos=2)
    message = reader.take(Publish)
    assert (message.payload, message.packet_id, dropped(message)) == (b"next", 4, 2)


def test_a_connected_client_gets_what_is_in_memory() -> None:
    """Nothing is lost to who has it already, whatever its window."""
    sim = make_sim()
    publisher, reader = _publisher(sim), Client(sim, "r", acks=False)
    reader.connect(receive_maximum=1)
    reader.subscribe("t", qos=1)
    for number in range(5):
        publisher.deliver("t", b"%d" % number)
    sim.run_for(50_000)
    assert drop_all(sim) == 0
    got = []
    for _ in range(5):
        message = reader.take(Publish)
        got.append(message.payload)
        assert dropped(message) == 0
        reader.send(Ack(PUBACK, message.packet_id))
    assert got == [b"%d" % number for number in range(5)]
    assert record(sim, "r").dropped_count == 0


def test_private_streams_stay_and_count_in_the_order() -> None:
    """What is addressed to one session alone is not in the generation; serial numbers of the rest
    agree with where it stands."""
    sim = make_sim()
    publisher, reader = _publisher(sim), Client(sim, "r", acks=False)
    publisher.deliver("kept/1", b"retained", retain=True)
    reader.connect()
    reader.subscribe("t", qos=1)
    publisher.deliver("t", b"lost")
    reader.subscribe("kept/+", qos=1)
    sim.run_for(50_000)
    publisher.deliver("t", b"acknowledged")
    sim.run_for(50_000)
    ids = {message.payload: message.packet_id for message in reader.messages}
    assert sorted(ids.values()) == [1, 2, 3]
    reader.send(Ack(PUBACK, ids[b"acknowledged"]))
    sim.run_for(500_000)
    reader.cut()
    assert drop_all(sim) == 1
    reader.connect()
    message = reader.take(Publish)
    assert (message.payload, message.packet_id) == (b"retained", ids[b"retained"])
    assert dropped(message) == 1


def test_a_kill_while_it_drops_loses_no_count() -> None:
    """Tombstones are there before the generation goes; done twice, nothing counts twice."""
    sim = make_sim()
    publisher, reader = _publisher(sim), Client(sim, "r")
    reader.connect()
    reader.subscribe("t", qos=1)
    reader.cut()
    for number in range(3):
        publisher.deliver("t", b"%d" % number)
    sim.store.rotate(sim.clock.now_us())
    info = sim.store.generations()[0]
    assert awaited(sim, disk_budget(sim)._put_tombstones("r", info, None)) == 3
    awaited(sim, sim.live.services.committer.sync_now())
    sim.kill(power=True)
    sim.start()
    assert awaited(sim, disk_budget(sim).drop(info)) == 0
    assert record(sim, "r").dropped_count == 3
    publisher = _publisher(sim)
    publisher.deliver("t", b"next")
    reader.connect()
    message = reader.take(Publish)
    assert (message.payload, message.packet_id, dropped(message)) == (b"next", 4, 3)


@pytest.mark.parametrize("filter_", ["t", "$share/g/t"])
def test_who_reads_on_while_a_generation_goes_loses_what_is_counted(filter_: str) -> None:
    """Nothing of what it was sent is counted, and all that it was not: the two are one beginning
    and one end."""
    sim = make_sim()
    publisher, reader = _publisher(sim), Client(sim, "r")
    reader.connect()
    reader.subscribe(filter_, qos=1)
    reader.cut()
    publish_many(publisher, "t", BACKLOG)
    sim.store.rotate(sim.clock.now_us())
    publisher.deliver("t", b"next")
    read_slowly(sim)
    reader.connect(receive_maximum=20)
    assert sim.run_until(lambda: len(reader.received) > 100, limit_us=10_000_000)
    lost = sum(awaited(sim, disk_budget(sim).drop(info)) for info in sim.store.generations()[:-1])
    sim.run_for(10_000_000)
    got = [int(payload) for payload in reader.payloads() if payload != b"next"]
    assert got == list(range(BACKLOG - lost))
    assert 0 < lost < BACKLOG
    assert sum(told["lost"] for told in sim.logged("generation.dropped")) == lost
