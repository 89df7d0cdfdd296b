"""A connection has a slice of each turn, reads no more than its peer, and dies alone."""

from __future__ import annotations

import gc
import struct

import pytest

from perdure.broker.connection.connection import Connection
from perdure.broker.connection.subscribe_handler import FILTERS_PER_STEP, SubscribeHandler
from perdure.broker.delivery.live_session import LiveSession
from perdure.broker.dispatch.items import Item
from perdure.broker.runtime.stream import PeerInfo
from perdure.broker.runtime.turn_budget import BEGUN_MAX, SLICE, Allowance, TurnBudget
from perdure.config.schema import Config, LimitsConfig, MqttConfig
from perdure.limits import CONNECT_HEAD_BYTES
from perdure.model import Message, Will
from perdure.mqtt.decode_header import OTHER_COST
from perdure.mqtt.encode import encode
from perdure.mqtt.packets import (
    PUBACK,
    V5,
    Ack,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    Suback,
    Subscribe,
    SubscribeFilter,
    Unsubscribe,
)
from tests.support.network import BUFFER_HIGH_BYTES
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import QUIET, Client, make_sim

PINGS = BUFFER_HIGH_BYTES // 10
"""Whose answers fill a fifth of what a client may leave unread."""


def _pair(sim: SimBroker) -> tuple[Client, Client]:
    one, other = Client(sim, "one"), Client(sim, "other")
    one.connect()
    other.connect()
    return one, other


def _send(client: Client, data: bytes) -> None:
    assert client.wire is not None
    client.wire.send(data)


@pytest.fixture
def shifts(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Grows with each turn in which work that was left over is gone on with."""
    seen: list[None] = []
    run = TurnBudget._run

    def counted(shifts: TurnBudget) -> None:
        seen.append(None)
        run(shifts)

    monkeypatch.setattr(TurnBudget, "_run", counted)
    # Virtual time stands still within a turn.
    monkeypatch.setattr("perdure.broker.runtime.turn_budget.SLICES_MAX", 1)
    return seen


def test_a_flood_has_a_slice_of_each_turn(shifts: list[None]) -> None:
    sim = make_sim()
    flood, honest = _pair(sim)
    received = sim.live.services.metrics.control_packets_received
    begun = len(shifts)
    _send(flood, b"\xc0\x00" * 2_000)
    honest.publish("t")
    sim.run_for(0)
    assert honest.take(Ack).kind == PUBACK
    sim.run_for(50_000)
    assert received[Pingreq.kind] == 2_000
    assert len(flood.received) == 2_000
    begins = 3  # its first slices are shorter
    assert len(shifts) - begun == 2_000 * OTHER_COST // SLICE + begins


def test_who_begins_has_not_published_much_before_it_is_known_what_that_causes() -> None:
    sim = make_sim()
    dispatcher = sim.live.services.pipeline.dispatcher
    assert dispatcher is not None
    taken: list[int] = []
    accept = dispatcher.accept

    def counted(items: list[Item]) -> None:
        taken.append(sum(isinstance(item, Message) for item in items))
        accept(items)

    client = Client(sim, "c")
    client.connect()
    sim.live.services.pipeline.sequenced = counted  # type: ignore[method-assign]
    publish = encode(Publish("t", b"", 0), V5)
    _send(client, publish * 2_000)
    sim.run_for(50_000)
    taken = [count for count in taken if count]
    assert sum(taken) == 2_000
    assert taken[0] <= 64
    assert taken[-2] >= 2 * taken[0]


def test_of_costly_messages_a_turn_takes_what_it_has_time_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Allowance, "took", lambda *_, **__: None)
    sim = make_sim()
    services = sim.live.services
    taken: list[int] = []
    accept = services.pipeline.sequenced

    def counted(items: list[Item]) -> None:
        taken.append(sum(isinstance(item, Message) for item in items))
        accept(items)

    clients = [Client(sim, f"c{number}") for number in range(4)]
    for client in clients:
        client.connect()
        client.publish("t")
    sim.run_for(50_000)
    services.pipeline.sequenced = counted  # type: ignore[method-assign]
    services.pipeline.turn_budget.allowance.messages = 3
    for client in clients:
        _send(client, encode(Publish("t", b"", 0), V5) * 40)
    sim.run_for(50_000)
    taken = [count for count in taken if count]
    assert sum(taken) == 4 * 40
    # Each of them begins with a slice; what is left over has one of each turn.
    assert taken[0] <= 4 * 3
    assert set(taken[1:-1]) == {3}


def test_an_ordinary_read_passes_in_one_go(shifts: list[None]) -> None:
    sim = make_sim()
    client = Client(sim, "c")
    client.connect()
    begun = len(shifts)
    for number in range(400):
        client.publish("t", bytes(100), packet_id=number + 1)
    client.subscribe("a", "b", "c")
    assert len(shifts) == begun


def test_what_is_read_again_in_one_turn_waits_for_the_next(shifts: list[None]) -> None:
    """uvloop reads up to 32 times 256 KB in a row of who sends fast."""
    sim = make_sim()
    client = Client(sim, "c")
    client.connect()
    sim.run_for(1_000)
    connection = sim.live.services.registry.live["c"].connection
    assert isinstance(connection, Connection)
    assert client.wire is not None
    received = sim.live.services.metrics
    large = encode(Publish("t", bytes(60_000), 0), V5)
    begun = len(shifts)
    for _ in range(4):
        connection.receive(large)
        if connection.inbound_gate.waits:
            break
    assert received.publishes_received == 1
    sim.run_for(1_000)
    assert received.publishes_received == 2
    assert len(shifts) - begun == 1
    assert not connection.inbound_gate.waits


def test_nothing_is_read_from_who_does_not_read() -> None:
    sim = make_sim()
    flood, honest = _pair(sim)
    assert flood.wire is not None
    flood.wire.stop_taking()
    for _ in range(40):
        _send(flood, b"\xc0\x00" * PINGS)
        sim.run_for(1_000)
    answered = sim.live.services.metrics.control_packets_received[Pingreq.kind]
    assert answered < BUFFER_HIGH_BYTES  # two bytes each
    assert flood.wire.write_buffer_size() <= BUFFER_HIGH_BYTES + SLICE * 2
    honest.deliver("t")
    flood.wire.take_again()
    sim.run_for(1_000_000)
    assert sim.live.services.metrics.control_packets_received[Pingreq.kind] == 40 * PINGS
    assert sum(isinstance(packet, Pingresp) for packet in flood.received) == 40 * PINGS


@pytest.mark.parametrize("version", [4, 5])
def test_a_client_that_takes_nothing_at_all_is_ended_by_its_keep_alive(version: int) -> None:
    sim = make_sim()
    client = Client(sim, "c", version=version)
    client.connect(keep_alive_s=2)
    assert client.wire is not None
    client.wire.stop_taking()
    for _ in range(8):
        _send(client, b"\xc0\x00" * PINGS)
    sim.run_for(4_000_000)
    assert "c" in sim.live.services.registry.live
    sim.run_for(4_000_000)
    assert "c" not in sim.live.services.registry.live


def test_connect_has_a_size_of_its_own() -> None:
    sim = make_sim(config=Config(sys=QUIET, mqtt=MqttConfig(connect_size_max=2000)))
    client = Client(sim, "c")
    client.open()
    head = encode(Connect(5, True, 0, "c" * (2000 + CONNECT_HEAD_BYTES)), 5)
    _send(client, head[:20])  # refused before its body comes
    assert client.take(Connack).reason == 0x95
    client.connect()
    client.deliver("t", bytes(10_000))  # the limit of other packets is another


def test_two_fields_of_the_largest_size_fit_a_connect() -> None:
    sim = make_sim(config=Config(sys=QUIET))
    client = Client(sim, "c")
    client.open()
    client.send(Connect(5, True, 0, "c", "u" * 65_535, b"p" * 65_535))
    assert client.take(Connack).reason == 0


def test_what_follows_connect_in_one_segment_is_held_to_the_other_limit() -> None:
    sim = make_sim(config=Config(sys=QUIET, mqtt=MqttConfig(connect_size_max=2000)))
    client = Client(sim, "c")
    client.open()
    client.send(Connect(5, True, 0, "c"), Publish("t", bytes(50_000), 1, packet_id=1))
    assert client.take(Connack).reason == 0
    assert client.take(Ack).kind == PUBACK


@pytest.mark.parametrize("version", [4, 5])
def test_filters_of_one_packet_have_a_limit(version: int) -> None:
    sim = make_sim(config=Config(sys=QUIET, mqtt=MqttConfig(subscribe_filters_max=3)))
    client = Client(sim, "c", version=version)
    client.connect()
    client.subscribe("a", "b", "c")
    client.send(Unsubscribe(9, ["a", "b", "c", "d"]))
    sim.run_for(10_000)
    assert client.is_lost
    if version == 5:
        assert client.take(Disconnect).reason == 0x97


@pytest.mark.parametrize("kind", ["connect", "publish", "subscribe"])
def test_properties_of_one_packet_have_a_limit(kind: str) -> None:
    sim = make_sim(config=Config(sys=QUIET, mqtt=MqttConfig(properties_max=32)))
    client = Client(sim, "c")
    pairs = tuple(("", "") for _ in range(33))
    forward = b"\x26\0\0\0\0" * 33
    if kind == "connect":
        client.open()
        client.send(Connect(5, True, 0, "c", properties=Properties(user_properties=pairs)))
        assert client.take(Connack).reason == 0x97
        return
    client.connect()
    if kind == "publish":
        client.send(Publish("t", b"", 0, forward=forward))
    else:
        wish = SubscribeFilter("t", 0)
        client.send(Subscribe(1, [wish], Properties(user_properties=pairs)))
    assert client.take(Disconnect).reason == 0x97


def test_a_long_subscribe_leaves_others_their_turn(shifts: list[None]) -> None:
    sim = make_sim()
    client, honest = _pair(sim)
    names = [f"a/{number}" for number in range(20 * FILTERS_PER_STEP)]
    client.send(Subscribe(1, [SubscribeFilter(name, 1) for name in names]))
    honest.deliver("elsewhere")
    assert client.take(Suback).reasons == [1] * len(names)
    assert len(shifts) >= 2 * len(names) // FILTERS_PER_STEP - 2
    honest.deliver(names[-1])
    sim.run_for(10_000)
    assert [message.topic for message in client.messages] == [names[-1]]


def test_unsubscribe_counts_for_the_rate_too() -> None:
    sim = make_sim(config=Config(sys=QUIET, limits=LimitsConfig(subscribe_rate=2)))
    client = Client(sim, "c")
    client.connect()
    for number in range(1, 5):
        client.send(Unsubscribe(number, ["x"]))
    client.send(Pingreq())
    sim.run_for(100_000)
    connection = sim.live.services.registry.live["c"].connection
    assert connection.inbound_gate.is_paused  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", [4, 5])
def test_an_unexpected_exception_costs_one_connection(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("a defect")

    sim = make_sim()
    client, honest = Client(sim, "c", version=version), Client(sim, "honest")
    client.connect()
    honest.connect()
    monkeypatch.setattr(SubscribeHandler, "subscribe", broken)
    client.send(Subscribe(1, [SubscribeFilter("a", 1)]))
    sim.run_for(10_000)
    assert client.is_lost
    if version == 5:
        assert client.take(Disconnect).reason == 0x83
    honest.deliver("t")
    assert sim.live.services.metrics.unexpected_errors == {("packet",): 1}
    (said,) = sim.logged("connection.failed")
    assert said["client_id"] == "c"
    assert said["packet"] == "SUBSCRIBE"
    assert said["error"] == "RuntimeError: a defect"
    assert said["exc_info"]
    client.connect()
    client.send(Subscribe(1, [SubscribeFilter("a", 1)]))
    sim.run_for(10_000)
    assert "exc_info" not in sim.logged("connection.failed")[1]  # one line from now on


@pytest.mark.parametrize(
    ("step", "filters"), [("deliver_one", ["t"]), ("deliver", ["t", "+"]), ("offer", ["t", "+"])]
)
def test_a_subscriber_that_fails_is_alone_in_it_and_loses_nothing(
    step: str, filters: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sim = make_sim()
    broken, honest, publisher = (Client(sim, name) for name in ("broken", "honest", "pub"))
    for client in (broken, honest, publisher):
        client.connect()
    for client in (broken, honest):
        client.subscribe(*filters, qos=1)
    real = getattr(LiveSession, step)
    is_broken = True

    def fails(session: LiveSession, *args: object) -> object:
        if is_broken and session.client_id == "broken":
            raise RuntimeError("a defect")
        return real(session, *args)

    monkeypatch.setattr(LiveSession, step, fails)
    for number in range(3):
        publisher.deliver("t", b"%d" % number)
    sim.run_for(100_000)
    assert [message.payload for message in honest.messages] == [b"0", b"1", b"2"]
    assert not broken.messages
    assert broken.is_lost
    assert sim.live.services.metrics.unexpected_errors == {("delivery",): 1}
    is_broken = False
    broken.connect()
    sim.run_for(1_000_000)
    assert [message.payload for message in broken.messages] == [b"0", b"1", b"2"]
    assert not honest.is_lost


def test_large_packets_of_many_clients_wait_for_room() -> None:
    sim = make_sim(config=Config(sys=QUIET, limits=LimitsConfig(incomplete_bytes_max=1024 * 1024)))
    clients = [Client(sim, f"c{number}") for number in range(5)]
    whole = encode(Publish("t", bytes(600_000), 1, packet_id=1), 5)
    for client in clients:
        client.connect()
        _send(client, whole[:100_000])
    sim.run_for(1_000)
    parcels = sim.live.services.inbound_frames
    assert parcels.waiting_count == 4
    for client in clients:
        _send(client, whole[100_000:])
    for client in clients:
        assert client.take(Ack).kind == PUBACK
    assert parcels.waiting_count == 0
    assert parcels.taken_bytes == 0


def test_large_connects_that_wait_have_room_in_all() -> None:
    """Thousands of them came faster than they were handled: 600 MB."""
    limits = LimitsConfig(connect_bytes_max=100_000)
    sim = make_sim(config=Config(sys=QUIET, limits=limits))
    clients = [Client(sim, f"c{number}") for number in range(4)]
    newcomers, metrics = sim.live.services.newcomers, sim.live.services.metrics
    will = Will("w", bytes(40_000))
    for client in clients[:3]:
        client.connect(will=will, wait=False)
    small = Client(sim, "small")
    small.connect(wait=False)
    assert newcomers.taken_bytes <= 100_000
    sim.run_for(100_000)
    assert [client.is_lost for client in clients[:3]] == [False, False, True]
    assert metrics.limit_refusals == {("limits.connect_bytes_max",): 1}
    assert newcomers.taken_bytes == 0
    assert not small.is_lost
    assert clients[3].connect(will=will).reason == 0


def test_of_many_that_come_at_once_some_begin_in_each_turn(shifts: list[None]) -> None:
    """A session that is opened takes a while; who is connected does not wait for a thousand."""
    sim = make_sim()
    clients = [Client(sim, f"c{number}") for number in range(3 * BEGUN_MAX)]
    begun = len(shifts)
    for client in clients:
        client.connect(wait=False)
    for client in clients:
        assert client.take(Connack).reason == 0
    assert len(shifts) - begun == 2  # turns, in each of which so many have begun
    assert sim.live.services.newcomers.taken_bytes == 0


def test_who_speaks_another_protocol_is_told_so_also_if_it_had_to_wait() -> None:
    sim = make_sim()
    clients = [Client(sim, f"c{number}") for number in range(BEGUN_MAX + 1)]
    for client in clients:
        client.open()
        _send(client, b"GET / HTTP/1.1\r\n\r\n")
    sim.run_for(100_000)
    assert all(client.is_lost for client in clients)
    (row,) = sim.live.services.refusal_log.table.latest()
    assert row.count == len(clients)
    assert row.reason.startswith("HTTP on an MQTT listener")


def test_what_waits_of_a_client_that_is_not_connected_has_no_room_when_it_is_gone() -> None:
    sim = make_sim(config=Config(sys=QUIET))
    client = Client(sim, "c")
    client.open()
    _send(client, encode(Connect(5, True, 0, "c", will=Will("w", bytes(60_000))), 5)[:50_000])
    sim.run_for(1_000)
    assert sim.live.services.newcomers.taken_bytes == 50_000
    client.cut()
    assert sim.live.services.newcomers.taken_bytes == 0


def test_who_holds_room_and_sends_nothing_is_closed_for_who_waits() -> None:
    sim = make_sim(config=Config(sys=QUIET, limits=LimitsConfig(incomplete_bytes_max=1024 * 1024)))
    slow, other = _pair(sim)
    whole = encode(Publish("t", bytes(1_500_000), 1, packet_id=1), 5)
    for client in (slow, other):
        _send(client, whole[:100_000])
        sim.run_for(1_000)
    _send(other, whole[100_000:])
    sim.run_for(20_000_000)
    assert slow.take(Disconnect).reason == 0x97
    assert other.take(Ack).kind == PUBACK


def test_qos_0_for_who_does_not_read_is_dropped_and_counted() -> None:
    sim = make_sim()
    slow, publisher = _pair(sim)
    slow.subscribe("t", qos=0)
    assert slow.wire is not None
    slow.wire.stop_taking()
    payload = bytes(1000)
    piece = encode(Publish("t", payload, 0), 5) * 1000
    for _ in range(20):
        _send(publisher, piece)
        sim.run_for(10_000)
    metrics = sim.live.services.metrics
    assert metrics.messages_dropped_queue_full > 10_000
    assert metrics.messages_delivered_0 + metrics.messages_dropped_queue_full == 20_000
    buffer_bytes = sim.config.session.outbound_buffer_bytes
    assert slow.wire.write_buffer_size() < 2 * max(buffer_bytes, BUFFER_HIGH_BYTES) + len(piece)
    assert not publisher.is_lost
    publisher.deliver("elsewhere")


@pytest.mark.parametrize("start", ["9" * 4301, "0" * 5000, "0001-01-01T00:00:00+23:59", "²"])
def test_a_replay_time_that_is_none_is_refused(start: str) -> None:
    sim = make_sim()
    client = Client(sim, "c")
    client.connect()
    assert client.subscribe(f"$replay/{start}/a").reasons == [0x8F]
    client.send(Unsubscribe(5, [f"$replay/{start}/a"]))
    sim.run_for(10_000)
    assert not client.is_lost
    assert sim.live.services.metrics.unexpected_errors == {}


def test_the_largest_will_fits_into_connect() -> None:
    """By the default limit: 65,535 bytes of it, a topic, a name and a password."""
    sim = make_sim()
    client = Client(sim, "c")
    client.open()
    will = struct.pack(">H", 1) + b"w" + struct.pack(">H", 65_535) + bytes(65_535)
    body = struct.pack(">H", 4) + b"MQTT\x04\x06\0\0" + struct.pack(">H", 1) + b"c" + will
    size = len(body)
    head = bytes((0x10, size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14))
    client.version = 4
    client.open()
    _send(client, head + body)
    assert client.take(Connack).reason == 0


def test_who_publishes_to_many_has_fewer_in_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is decoded at once goes by what each message causes, not by the packets alone."""
    sim = make_sim(config=Config(sys=QUIET))
    readers = [Client(sim, f"r{number}") for number in range(40)]
    for reader in readers:
        reader.connect()
        reader.subscribe("fan/#", qos=0)
    publisher = Client(sim, "p")
    publisher.connect()
    runs: list[int] = []
    process = Connection._process

    def counted(connection: Connection, packets: list[Packet]) -> None:
        runs.append(sum(isinstance(packet, Publish) for packet in packets))
        process(connection, packets)

    monkeypatch.setattr(Connection, "_process", counted)
    message = encode(Publish("fan/1", b"x"), 5)
    for _ in range(2):
        _send(publisher, message * 8)
        sim.run_for(200_000)
    runs.clear()
    _send(publisher, message * 400)
    sim.run_for(200_000)
    assert max(runs) < 60  # 512, were it not for the subscribers
    assert sum(runs) == 400
    assert {len(reader.messages) for reader in readers} == {416}


@pytest.mark.parametrize("ends", ["refused", "gone"])
def test_an_ended_connection_holds_nothing_of_what_it_was_sent(ends: str) -> None:
    """It is part of cycles and collected much later: a thousand of them may wait for it."""
    sim = make_sim(config=Config(sys=QUIET))
    client = Client(sim, "c")
    client.connect()
    connection = sim.live.services.registry.live["c"].connection
    assert isinstance(connection, Connection)
    large = encode(Publish("t", bytes(100_000)), 5)
    if ends == "gone":
        _send(client, large[:90_000])
        sim.run_for(200_000)
        assert connection.kept_bytes == 90_000
        client.cut()
    else:
        _send(client, b"\xf3\x00" + large)
    sim.run_for(200_000)
    assert connection.is_closed
    assert connection.kept_bytes == 0
    failure = connection._decoder.failure
    assert (failure is None) == (ends == "gone")
    assert failure is None or failure.__traceback__ is None


class _Written:
    """A stream that keeps what is written."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> None:
        self.data += data

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def write_buffer_size(self) -> int:
        return 0

    def has_ended(self) -> bool:
        return False


def _lives_and_goes(sim: SimBroker, ending: str, *, expiry_s: int) -> None:
    """A client that does a little of everything, until its transport is gone."""
    stream = _Written()
    connection = sim.live.connection(stream, PeerInfo("tcp", "tcp", "192.0.2.1", 7, loopback=False))

    def say(*packets: Packet) -> None:
        connection.receive(b"".join(encode(packet, V5) for packet in packets))
        sim.run_for(50_000)

    if ending == "says nothing":
        connection.receive(b"\x10")
    else:
        properties = Properties(session_expiry_interval=expiry_s)
        will = Will("t/will", b"gone", 1, False)
        say(Connect(V5, True, 30, "goes", will=will, properties=properties))
        say(Subscribe(1, [SubscribeFilter("t/#", 2)]))
        say(Publish("t/1", b"x", 1, packet_id=1), Publish("t/2", b"x", 2, packet_id=2))
        assert stream.data
        if ending == "in the middle":
            # Acknowledgements that wait for the disk, and a message that is not released.
            connection.receive(encode(Publish("t/3", b"x", 2, packet_id=3), V5))
        elif ending == "breaks the protocol":
            say(Connect(V5, True, 0, "goes"))
        elif ending == "disconnects":
            say(Disconnect(0))
    connection.connection_lost(None)
    sim.run_for(50_000)


@pytest.mark.parametrize("expiry_s", [0, 60])
@pytest.mark.parametrize(
    "ending", ["says nothing", "disconnects", "in the middle", "breaks the protocol"]
)
def test_who_is_gone_leaves_nothing_for_the_collector(ending: str, expiry_s: int) -> None:
    sim = make_sim()
    _lives_and_goes(sim, ending, expiry_s=expiry_s)  # what is made once is made
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        _lives_and_goes(sim, ending, expiry_s=expiry_s)
        gc.collect()
        kinds = {type(each) for each in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    assert [kind for kind in kinds if "perdure" in kind.__module__] == []


def test_nobody_keeps_what_comes_after_the_end() -> None:
    sim = make_sim()
    one, other = _pair(sim)
    one.cut()
    other.cut()
    nobody = sim.live.services.nobody
    assert isinstance(nobody, Connection)
    assert nobody.is_closed
    nobody.inbound_gate.put_back([Pingreq()])
    assert not nobody.inbound_gate.keeps_any
    nobody.receive(encode(Pingreq(), V5))
    nobody.disconnect(0x8B, "", send_will=True)
    other.connect()
    other.deliver("t", b"x")
