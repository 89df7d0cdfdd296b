"""A store that cannot be read: it costs the one who needs it, and nothing is lost by it."""

from __future__ import annotations

import pytest
from tests.support.world import World
from tests.unit.broker.harness import QUIET, Client, make_world

from perdure.config.schema import Config, SessionConfig, StorageConfig
from perdure.errors import StorageCorrupt, StorageError, StorageUnavailable
from perdure.model import Message
from perdure.mqtt.packets import PUBACK, Ack, Connack, Disconnect, Publish
from perdure.session.seqno import PACKET_IDS, packet_id_of

ERRORS = [StorageUnavailable("broken"), StorageCorrupt("damaged")]
SMALL = Config(
    sys=QUIET,
    session=SessionConfig(
        inflight_max=5, memory_pending_max=4, feed_chunk=3, outbound_buffer_bytes=4096
    ),
)


def _publisher(world: World) -> Client:
    publisher = Client(world, "p")
    publisher.connect(expiry_s=0, clean=True)
    return publisher


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(("version", "code"), [(4, 3), (5, 0x88)])
def test_connect_is_refused(version: int, code: int, error: StorageError) -> None:
    world = make_world()
    client = Client(world, "c", version=version)
    world.store.read_error = error
    client.connect(wait=False)
    assert client.take(Connack).reason == code
    world.run_for(1_000)
    assert client.is_lost
    world.store.heal()
    assert client.connect().reason == 0


def test_subscribe_ends_the_connection_and_works_afterwards() -> None:
    world = make_world()
    publisher, client = _publisher(world), Client(world, "c")
    publisher.deliver("r", b"kept", retain=True)
    client.connect()
    world.store.read_error = StorageUnavailable("broken")
    with pytest.raises(AssertionError, match="no Suback"):
        client.subscribe("r")
    assert client.take(Disconnect).reason == 0x80
    world.store.heal()
    client.connect()
    client.subscribe("r")
    assert client.payloads() == [b"kept"]


@pytest.mark.parametrize("error", ERRORS)
def test_a_lagging_session_gets_everything_later(error: StorageError) -> None:
    world = make_world(config=SMALL)
    publisher, other = _publisher(world), Client(world, "o")
    reader = Client(world, "r", acks=False)
    other.connect()
    reader.connect()
    reader.subscribe("t", qos=1)
    bodies = [b"%d" % number for number in range(30)]
    for body in bodies:
        publisher.publish("t", body)
    world.run_for(50_000)
    assert world.live.services.registry.live["r"].lagging
    world.store.read_error = error
    reader.acks = True
    for packet in list(reader.received):
        reader._answer(packet)
    assert reader.take(Disconnect).reason == 0x80
    world.run_for(5_000_000)
    assert not other.is_lost
    assert not publisher.is_lost
    assert [entry["client_id"] for entry in world.logged("storage.read_failed")] == ["r"]
    world.store.heal()
    reader.connect()
    world.run_for(500_000)
    assert list(dict.fromkeys(message.payload for message in reader.messages)) == bodies


def test_a_feed_goes_on_later() -> None:
    world = make_world(config=SMALL)
    publisher, reader = _publisher(world), Client(world, "r", acks=False)
    bodies = [b"%d" % number for number in range(20)]
    for number, body in enumerate(bodies):
        publisher.deliver(f"t/{number:02}", body, retain=True)
    reader.connect()
    reader.subscribe("t/+", qos=1)
    world.run_for(50_000)
    world.store.read_error = StorageUnavailable("broken")
    reader.acks = True
    for packet in list(reader.received):
        reader._answer(packet)
    assert reader.take(Disconnect).reason == 0x80
    world.store.heal()
    reader.connect()
    world.run_for(2_000_000)
    assert sorted({message.payload for message in reader.messages}, key=int) == bodies


def test_a_group_tries_again() -> None:
    # Each commit at once: what the group reads first must not depend on the spacing.
    config = Config(sys=QUIET, storage=StorageConfig(commit_interval_us=0))
    world = make_world(config=config)
    publisher, member = _publisher(world), Client(world, "m")
    member.connect()
    member.subscribe("$share/g/t", qos=1)
    member.disconnect()
    bodies = [b"%d" % number for number in range(20)]
    for body in bodies:
        publisher.publish("t", body)
    world.run_for(50_000)
    services = world.live.services
    group = services.shares.groups["g/t"]
    member.connect()
    world.store.read_error = StorageUnavailable("broken")
    group.fall_behind(group.position)
    world.run_for(1_500_000)
    assert {entry["group"] for entry in world.logged("storage.read_failed")} == {"g/t"}
    world.store.heal()
    world.run_for(2_000_000)
    assert [message.payload for message in member.messages] == bodies


def test_the_reaper_tries_again() -> None:
    world = make_world()
    client = Client(world, "c")
    client.connect(expiry_s=10)
    client.disconnect()
    world.store.read_error = StorageUnavailable("broken")
    world.run_for(15_000_000)
    assert world.logged("storage.read_failed")
    assert not world.logged("session.expired")
    world.store.heal()
    world.run_for(2_000_000)
    assert len(world.logged("session.expired")) == 1


def test_work_of_the_broker_is_tried_until_it_succeeds() -> None:
    world = make_world()
    attempts: list[int] = []

    async def work() -> None:
        attempts.append(world.clock.monotonic_us())
        if len(attempts) < 3:
            raise StorageUnavailable("broken")

    world.live.services.spawn(work, name="work")
    world.run_for(10_000_000)
    assert [after - attempts[0] for after in attempts] == [0, 1_000_000, 2_000_000]
    assert [entry["task"] for entry in world.logged("storage.read_failed")] == ["work", "work"]


def test_gauges_ask_no_store_that_has_failed() -> None:
    world = make_world()
    publisher = _publisher(world)
    publisher.deliver("t")
    services = world.live.services
    services.gauges()
    assert services.metrics.storage_messages == 1
    world.store.write_error = StorageUnavailable("broken")
    publisher.publish("t")
    world.run_for(10_000)
    world.store.read_error = StorageUnavailable("not open")
    with pytest.raises(StorageUnavailable):
        world.store.generations()
    services.gauges()
    assert services.metrics.storage_messages == 1


def test_the_age_of_what_is_not_acknowledged() -> None:
    world = make_world()
    publisher, slow, slower = (
        _publisher(world),
        *(Client(world, name, acks=False) for name in ("slow", "slower")),
    )
    for reader, topic in ((slow, "a"), (slower, "b")):
        reader.connect()
        reader.subscribe(topic, qos=1)
    services = world.live.services
    services.gauges()
    assert services.metrics.oldest_unacked_seconds == 0
    publisher.deliver("b")
    world.run_for(30_000_000)
    publisher.deliver("a")
    publisher.deliver("b")
    world.run_for(5_500_000)
    services.gauges()
    assert services.metrics.oldest_unacked_seconds == 35
    slower.send(Ack(PUBACK, slower.messages[0].packet_id))
    world.run_for(1_000)
    services.gauges()
    assert services.metrics.oldest_unacked_seconds == 5


def test_a_session_that_is_held_up_is_told_once() -> None:
    world = make_world()
    client = Client(world, "stuck", acks=False)
    client.connect()
    services = world.live.services
    outbound = services.registry.live["stuck"].outbound
    message = Message("t", b"x")
    for offset in range(1, PACKET_IDS + 1):
        outbound.offer(message, 1, False, (), offset)
        if offset > 1:
            outbound.acknowledge(packet_id_of(offset))
    for _ in range(20):
        services.gauges()
        assert services.metrics.sessions_held_up == 1
        world.run_for(1_000_000)
    (told,) = world.logged("session.held_up")
    assert (told["client_id"], told["packet_id"], told["behind"]) == ("stuck", 1, PACKET_IDS - 1)
    outbound.acknowledge(1)
    services.gauges()
    assert services.metrics.sessions_held_up == 0
    assert not services.held_up


def test_writes_reads_resumes_and_takeovers_are_timed() -> None:
    world = make_world()
    publisher, first, second = _publisher(world), Client(world, "c"), Client(world, "c")
    metrics = world.live.services.metrics
    first.connect()
    first.subscribe("t", qos=1)
    assert metrics.session_resume_seconds.count == metrics.takeover_seconds.count == 0
    first.disconnect()
    world.run_for(10_000)
    writes = metrics.storage_append_seconds.count
    publisher.deliver("t", b"1")
    assert metrics.storage_append_seconds.count == writes + 1
    assert metrics.storage_read_seconds.count == 0

    async def slowly() -> None:
        gate = world.live.services.scheduler.gate()
        world.live.services.scheduler.call_later(3_000, gate.open)
        await gate

    world.store.pause = slowly
    assert first.connect().session_present
    world.run_for(10_000)
    assert [message.payload for message in first.messages] == [b"1"]
    assert metrics.session_resume_seconds.count == 1
    assert metrics.session_resume_seconds.sum >= 3_000
    assert metrics.storage_read_seconds.count >= 1
    assert metrics.storage_read_seconds.sum >= 3_000
    world.store.pause = None
    assert second.connect().session_present
    assert metrics.takeover_seconds.count == 1
    assert metrics.session_resume_seconds.count == 2


def test_what_is_published_reaches_readers_while_one_cannot_be_read() -> None:
    world = make_world()
    publisher, reader = _publisher(world), Client(world, "r")
    reader.connect()
    reader.subscribe("t")
    world.store.read_error = StorageUnavailable("broken")
    publisher.publish("t", b"now")
    assert reader.take(Publish).payload == b"now"
