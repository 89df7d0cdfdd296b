"""A client for tests of the broker: it sends exactly what it is told, to a simulated one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, final

from perdure.config.schema import Config, StorageConfig, SysConfig
from perdure.limits import SESSION_EXPIRY_NEVER_S
from perdure.model import Will
from perdure.mqtt.decode import Decoder
from perdure.mqtt.encode import encode
from perdure.mqtt.packets import (
    EMPTY,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Ack,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Properties,
    Publish,
    Suback,
    Subscribe,
    SubscribeFilter,
    Unsuback,
    Unsubscribe,
)
from perdure.storage.contract import Counted, ReadResult
from tests.support.network import NetworkProfile, Wire
from tests.support.sim_broker import SimBroker
from tests.support.storage import FaultyDatabase

PacketT = TypeVar("PacketT", bound=Packet)

NO_DELAY = NetworkProfile(delays_us=(0,), pieces_max=1)
QUIET = SysConfig(interval_s=0)

BACKLOG = 3_000
"""Messages: more than a client is sent before something else has had its turn."""


def make_sim(
    *, config: Config | None = None, store: FaultyDatabase | None = None, durability: str = ""
) -> SimBroker:
    """A running broker with a network without delay and syncs of one millisecond."""
    sim = SimBroker(
        config=config or Config(sys=QUIET),
        network_profile=NO_DELAY,
        store=store,
        durability=durability,
    )
    sim.blocking_us = (1_000, 1_000)
    sim.start()
    return sim


def stalled_sim(*, durability: str = "fsync") -> SimBroker:
    """A running broker whose syncs never end, and that waits for them."""
    sim = SimBroker(
        config=Config(sys=QUIET, storage=StorageConfig(durability="fsync")),
        network_profile=NO_DELAY,
        durability=durability,
    )
    sim.start()
    assert sim.scheduler is not None
    sim.scheduler.blocking_us = (10**12, 10**12)
    return sim


@final
class Client:
    """One client; ``received`` has what came and was not taken yet.

    Args:
        sim: the broker to connect to, and its network.
        client_id: its name.
        version: 4 or 5.
        acks: answer each message at once, as far as its exchange goes.
    """

    def __init__(
        self, sim: SimBroker, client_id: str, *, version: int = 5, acks: bool = True
    ) -> None:
        self.sim = sim
        self.client_id = client_id
        self.version = version
        self.acks = acks
        self.received: list[Packet] = []
        self.messages: list[Publish] = []
        """Every PUBLISH that ever came."""
        self.answered: list[Publish] = []
        """Those that were answered at once."""
        self.is_lost = True
        self.wire: Wire | None = None
        self._decoder = Decoder(server_side=False, packet_size_max=2**28, version=version)
        self._packet_id = 0

    # As the handler of a wire.

    def received_bytes(self, wire_of: int, data: bytes) -> None:
        """Take bytes of one connection."""
        if wire_of != self._generation:
            return
        for packet in self._decoder.feed(data):
            self.received.append(packet)
            if isinstance(packet, Publish):
                self.messages.append(packet)
                if self.acks:
                    self.answered.append(packet)
            if self.acks:
                self._answer(packet)
        assert self._decoder.failure is None

    _generation = 0

    # Doing.

    def connect(
        self,
        *,
        clean: bool = False,
        expiry_s: int = SESSION_EXPIRY_NEVER_S,
        will: Will | None = None,
        receive_maximum: int | None = None,
        packet_size_max: int | None = None,
        keep_alive_s: int = 0,
        problem_information: bool = True,
        wait: bool = True,
    ) -> Connack:
        """Connect, and return CONNACK."""
        self.open()
        properties = EMPTY
        if self.version == 5:
            properties = Properties(
                session_expiry_interval=expiry_s,
                receive_maximum=receive_maximum,
                maximum_packet_size=packet_size_max,
                request_problem_information=None if problem_information else 0,
            )
        self.send(
            Connect(
                self.version, clean, keep_alive_s, self.client_id, will=will, properties=properties
            )
        )
        if not wait:
            return Connack(False)
        return self.take(Connack)

    def open(self) -> None:
        """Open a connection and say nothing yet."""
        self._generation += 1
        self._decoder = Decoder(server_side=False, packet_size_max=2**28, version=self.version)
        self.received.clear()
        self.is_lost = False
        self.wire = self.sim.network.connect(_End(self, self._generation))
        assert self.wire is not None

    def send(self, *packets: Packet) -> None:
        """Send packets in one piece."""
        assert self.wire is not None
        self.wire.send(b"".join(encode(packet, self.version) for packet in packets))

    def publish(
        self,
        topic: str,
        payload: bytes = b"x",
        *,
        qos: int = 1,
        packet_id: int = 0,
        retain: bool = False,
        expiry_s: int = -1,
        dup: bool = False,
        forward: bytes = b"",
    ) -> int:
        """Send PUBLISH; returns its packet identifier."""
        if qos and not packet_id:
            self._packet_id += 1
            packet_id = self._packet_id
        identifier = packet_id if qos else 0
        self.send(Publish(topic, payload, qos, retain, dup, identifier, 0, expiry_s, forward))
        return packet_id

    def deliver(
        self,
        topic: str,
        payload: bytes = b"x",
        *,
        qos: int = 1,
        retain: bool = False,
        expiry_s: int = -1,
    ) -> None:
        """Publish and see the exchange through; earlier acknowledgements are forgotten."""
        self.received = [packet for packet in self.received if not isinstance(packet, Ack)]
        packet_id = self.publish(topic, payload, qos=qos, retain=retain, expiry_s=expiry_s)
        if qos == 1:
            found = self.take(Ack)
            assert (found.kind, found.packet_id) == (PUBACK, packet_id)
            assert found.reason in (0, 0x10)  # whether anybody listens is no matter here
        elif qos == 2:
            assert self.take(Ack) == Ack(PUBREC, packet_id)
            if not self.acks:
                self.send(Ack(PUBREL, packet_id))
            assert self.take(Ack) == Ack(PUBCOMP, packet_id)

    def subscribe(
        self, *filters: str, qos: int = 2, properties: Properties = EMPTY, **options: int
    ) -> Suback:
        """Subscribe, and return SUBACK."""
        wishes = [
            SubscribeFilter(
                topic_filter,
                qos,
                bool(options.get("no_local", 0)),
                bool(options.get("retain_as_published", 0)),
                options.get("retain_handling", 0),
            )
            for topic_filter in filters
        ]
        self.send(Subscribe(60_000, wishes, properties))
        return self.take(Suback)

    def unsubscribe(self, *filters: str) -> Unsuback:
        """Unsubscribe, and return UNSUBACK."""
        self.send(Unsubscribe(60_001, list(filters)))
        return self.take(Unsuback)

    def acknowledge(self) -> None:
        """Answer all that has come, and from now on each message at once."""
        self.acks = True
        for packet in list(self.received):
            self._answer(packet)

    def disconnect(self, *, reason: int = 0, expiry_s: int | None = None) -> None:
        """Say goodbye and close."""
        properties = EMPTY if expiry_s is None else Properties(session_expiry_interval=expiry_s)
        self.send(Disconnect(reason, properties))
        assert self.wire is not None
        self.wire.hang_up()
        self.sim.run_for(20_000)

    def cut(self) -> None:
        """Lose the connection."""
        assert self.wire is not None
        self.wire.cut()
        self.sim.run_for(20_000)

    # Seeing.

    def take(self, kind: type[PacketT]) -> PacketT:
        """The next packet of a type; those before it are left."""
        found: list[PacketT] = []

        def look() -> bool:
            for index, packet in enumerate(self.received):
                if isinstance(packet, kind):
                    found.append(packet)
                    del self.received[index]
                    return True
            return False

        assert self.sim.run_until(look, limit_us=30_000_000), f"no {kind.__name__} came"
        return found[0]

    def take_all(self, kind: type[PacketT]) -> list[PacketT]:
        """The packets of a type that have come and were not taken."""
        found: list[PacketT] = [packet for packet in self.received if isinstance(packet, kind)]
        self.received = [packet for packet in self.received if not isinstance(packet, kind)]
        return found

    def none_comes(self, kind: type[Packet] = Publish, *, within_us: int = 100_000) -> None:
        """Wait, and see that no packet of a type comes."""
        self.sim.run_for(within_us)
        assert not [packet for packet in self.received if isinstance(packet, kind)]

    def payloads(self, *, within_us: int = 200_000) -> list[bytes]:
        """Payloads of all messages that come within a time, in order."""
        self.sim.run_for(within_us)
        found = [packet.payload for packet in self.received if isinstance(packet, Publish)]
        self.received = [p for p in self.received if not isinstance(p, Publish)]
        return found

    def _answer(self, packet: Packet) -> None:
        if isinstance(packet, Publish) and packet.qos:
            self.send(Ack(PUBACK if packet.qos == 1 else PUBREC, packet.packet_id))
        elif isinstance(packet, Ack) and packet.kind == PUBREL:
            self.send(Ack(PUBCOMP, packet.packet_id))
        elif isinstance(packet, Ack) and packet.kind == PUBREC and packet.reason < 0x80:
            self.send(Ack(PUBREL, packet.packet_id))

    def lost_wire(self, wire_of: int) -> None:
        """A connection is gone."""
        if wire_of == self._generation:
            self.is_lost = True


@final
class _End:
    """One connection of a client."""

    def __init__(self, client: Client, number: int) -> None:
        self._client = client
        self._number = number

    def received(self, data: bytes) -> None:
        self._client.received_bytes(self._number, data)

    def lost(self) -> None:
        self._client.lost_wire(self._number)


def until(sim: SimBroker, condition: Callable[[], bool]) -> None:
    """Let time pass until something holds."""
    assert sim.run_until(condition, limit_us=30_000_000)


def read_slowly(sim: SimBroker) -> None:
    """Each look into the log takes its time, so that others have theirs."""
    read, count, scheduler = sim.store.read, sim.store.count, sim.scheduler
    assert scheduler is not None

    async def later() -> None:
        gate = scheduler.gate()
        scheduler.call_later(2_000, gate.open)
        await gate

    async def read_later(*args: Any, **options: Any) -> ReadResult:
        await later()
        return await read(*args, **options)

    async def count_later(*args: Any, **options: Any) -> Counted:
        counted = await count(*args, **options)
        await later()
        return counted

    sim.store.read = read_later  # type: ignore[method-assign]
    sim.store.count = count_later  # type: ignore[method-assign]


def publish_many(publisher: Client, topic: str, count: int) -> None:
    """Publish the numbers from 0 on, QoS 1, and take their acknowledgements."""
    for number in range(count):
        publisher.publish(topic, b"%d" % number)
        if number % 500 == 0:
            publisher.sim.run_for(50_000)
    publisher.sim.run_for(50_000)
    publisher.received.clear()
