"""A store that cannot be read: it costs the one who needs it, and nothing is lost by it."""

from __future__ import annotations

import pytest

from perdure.config.schema import Config, SessionConfig, StorageConfig
from perdure.errors import StorageCorrupt, StorageError, StorageUnavailable
from perdure.mqtt.packets import Connack, Disconnect, Publish
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import QUIET, Client, make_sim

ERRORS = [StorageUnavailable("broken"), StorageCorrupt("damaged")]
SMALL = Config(
    sys=QUIET,
    session=SessionConfig(
        inflight_max=5, memory_pending_max=4, feed_chunk=3, outbound_buffer_bytes=4096
    ),
)


def _publisher(sim: SimBroker) -> Client:
    publisher = Client(sim, "p")
    publisher.connect(expiry_s=0, clean=True)
    return publisher


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(("version", "code"), [(4, 3), (5, 0x88)])
def test_connect_is_refused(version: int, code: int, error: StorageError) -> None:
    sim = make_sim()
    client = Client(sim, "c", version=version)
    sim.store.read_error = error
    client.connect(wait=False)
    assert client.take(Connack).reason == code
    sim.run_for(1_000)
    assert client.is_lost
    sim.store.heal()
    assert client.connect().reason == 0


def test_subscribe_ends_the_connection_and_works_afterwards() -> None:
    sim = make_sim()
    publisher, client = _publisher(sim), Client(sim, "c")
    publisher.deliver("r", b"kept", retain=True)
    client.connect()
    sim.store.read_error = StorageUnavailable("broken")
    with pytest.raises(AssertionError, match="no Suback"):
        client.subscribe("r")
    assert client.take(Disconnect).reason == 0x80
    sim.store.heal()
    client.connect()
    client.subscribe("r")
    assert client.payloads() == [b"kept"]


@pytest.mark.parametrize("error", ERRORS)
def test_a_lagging_session_gets_everything_later(error: StorageError) -> None:
    sim = make_sim(config=SMALL)
    publisher, other = _publisher(sim), Client(sim, "o")
    reader = Client(sim, "r", acks=False)
    other.connect()
    reader.connect()
    reader.subscribe("t", qos=1)
    bodies = [b"%d" % number for number in range(30)]
    for body in bodies:
        publisher.publish("t", body)
    sim.run_for(50_000)
    assert sim.live.services.registry.live["r"].lagging
    sim.store.read_error = error
    reader.acks = True
    for packet in list(reader.received):
        reader._answer(packet)
    assert reader.take(Disconnect).reason == 0x80
    sim.run_for(5_000_000)
    assert not other.is_lost
    assert not publisher.is_lost
    assert [entry["client_id"] for entry in sim.logged("storage.read_failed")] == ["r"]
    sim.store.heal()
    reader.connect()
    sim.run_for(500_000)
    assert list(dict.fromkeys(message.payload for message in reader.messages)) == bodies


def test_a_feed_goes_on_later() -> None:
    sim = make_sim(config=SMALL)
    publisher, reader = _publisher(sim), Client(sim, "r", acks=False)
    bodies = [b"%d" % number for number in range(20)]
    for number, body in enumerate(bodies):
        publisher.deliver(f"t/{number:02}", body, retain=True)
    reader.connect()
    reader.subscribe("t/+", qos=1)
    sim.run_for(50_000)
    sim.store.read_error = StorageUnavailable("broken")
    reader.acks = True
    for packet in list(reader.received):
        reader._answer(packet)
    assert reader.take(Disconnect).reason == 0x80
    sim.store.heal()
    reader.connect()
    sim.run_for(2_000_000)
    assert sorted({message.payload for message in reader.messages}, key=int) == bodies


def test_a_group_tries_again() -> None:
    # Each commit at once: what the group reads first must not depend on the spacing.
    config = Config(sys=QUIET, storage=StorageConfig(commit_interval_us=0))
    sim = make_sim(config=config)
    publisher, member = _publisher(sim), Client(sim, "m")
    member.connect()
    member.subscribe("$share/g/t", qos=1)
    member.disconnect()
    bodies = [b"%d" % number for number in range(20)]
    for body in bodies:
        publisher.publish("t", body)
    sim.run_for(50_000)
    services = sim.live.services
    group = services.shared_subscriptions.groups["g/t"]
    member.connect()
    sim.store.read_error = StorageUnavailable("broken")
    group.fall_behind(group.position)
    sim.run_for(1_500_000)
    assert {entry["group"] for entry in sim.logged("storage.read_failed")} == {"g/t"}
    sim.store.heal()
    sim.run_for(2_000_000)
    assert [message.payload for message in member.messages] == bodies


def test_the_reaper_tries_again() -> None:
    sim = make_sim()
    client = Client(sim, "c")
    client.connect(expiry_s=10)
    client.disconnect()
    sim.store.read_error = StorageUnavailable("broken")
    sim.run_for(15_000_000)
    assert sim.logged("storage.read_failed")
    assert not sim.logged("session.expired")
    sim.store.heal()
    sim.run_for(2_000_000)
    assert len(sim.logged("session.expired")) == 1


def test_work_of_the_broker_is_tried_until_it_succeeds() -> None:
    sim = make_sim()
    attempts: list[int] = []

    async def work() -> None:
        attempts.append(sim.clock.monotonic_us())
        if len(attempts) < 3:
            raise StorageUnavailable("broken")

    sim.live.services.spawn(work, name="work")
    sim.run_for(10_000_000)
    assert [after - attempts[0] for after in attempts] == [0, 1_000_000, 2_000_000]
    assert [entry["task"] for entry in sim.logged("storage.read_failed")] == ["work", "work"]


def test_writes_reads_resumes_and_takeovers_are_timed() -> None:
    sim = make_sim()
    publisher, first, second = _publisher(sim), Client(sim, "c"), Client(sim, "c")
    metrics = sim.live.services.metrics
    first.connect()
    first.subscribe("t", qos=1)
    assert metrics.session_resume_seconds.count == metrics.takeover_seconds.count == 0
    first.disconnect()
    sim.run_for(10_000)
    writes = metrics.storage_append_seconds.count
    publisher.deliver("t", b"1")
    assert metrics.storage_append_seconds.count == writes + 1
    assert metrics.storage_read_seconds.count == 0

    async def slowly() -> None:
        gate = sim.live.services.scheduler.gate()
        sim.live.services.scheduler.call_later(3_000, gate.open)
        await gate

    sim.store.pause = slowly
    assert first.connect().session_present
    sim.run_for(10_000)
    assert [message.payload for message in first.messages] == [b"1"]
    assert metrics.session_resume_seconds.count == 1
    assert metrics.session_resume_seconds.sum >= 3_000
    assert metrics.storage_read_seconds.count >= 1
    assert metrics.storage_read_seconds.sum >= 3_000
    sim.store.pause = None
    assert second.connect().session_present
    assert metrics.takeover_seconds.count == 1
    assert metrics.session_resume_seconds.count == 2


def test_what_is_published_reaches_readers_while_one_cannot_be_read() -> None:
    sim = make_sim()
    publisher, reader = _publisher(sim), Client(sim, "r")
    reader.connect()
    reader.subscribe("t")
    sim.store.read_error = StorageUnavailable("broken")
    publisher.publish("t", b"now")
    assert reader.take(Publish).payload == b"now"
