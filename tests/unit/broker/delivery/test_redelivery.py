"""Redelivery sends what was sent: whatever becomes of subscriptions in between."""

from __future__ import annotations

import random
from typing import Final, final

import pytest

from perdure.config.schema import Config, SessionConfig
from perdure.mqtt.packets import EMPTY, PUBACK, PUBCOMP, PUBREC, PUBREL, Ack, Properties, Publish
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import QUIET, Client, make_sim

FILTERS: Final = ("#", "t/#", "t/+", "t/a", "t/b", "+/a", "t/a/#", "+/b", "+/+", "t/c", "+/c")
TOPICS: Final = ("t/a", "t/b", "t/c")


def as_sent(packet: Publish) -> tuple[object, ...]:
    """All of a PUBLISH that a redelivery repeats: everything but DUP."""
    return (
        packet.topic,
        packet.payload,
        packet.qos,
        packet.retain,
        packet.packet_id,
        packet.identifiers,
    )


def identified(number: int) -> Properties:
    """SUBSCRIBE properties with a subscription identifier."""
    return Properties(subscription_identifiers=(number,)) if number else EMPTY


@final
class Reader:
    """A client that acknowledges when it is told, and checks what is sent again."""

    def __init__(self, sim: SimBroker, chance: random.Random, version: int) -> None:
        self.client = Client(sim, "r", version=version, acks=False)
        self.chance = chance
        self.sent: dict[int, Publish] = {}
        """PUBLISH of this connection that are to be acknowledged, by packet identifier."""
        self.received: set[int] = set()
        """Identifiers that were acknowledged with PUBREC and not yet with PUBCOMP."""
        self.released: set[int] = set()
        """Those of them whose PUBREL came on this connection."""
        self.last: dict[int, Publish] = {}
        """What each packet identifier was last given for."""
        self._again: set[int] = set()

    def connect(self) -> None:
        """Come back: everything unacknowledged has to come once more."""
        self._again.update(self.sent, self.received)
        self.sent.clear()
        self.released.clear()
        self.client.connect()

    def take(self) -> None:
        """Look at what has come."""
        packets, self.client.received = self.client.received, []
        for packet in packets:
            if isinstance(packet, Publish) and packet.qos:
                self._take_publish(packet)
            elif isinstance(packet, Ack) and packet.kind == PUBREL:
                self.released.add(packet.packet_id)
                self._again.discard(packet.packet_id)

    def _take_publish(self, packet: Publish) -> None:
        packet_id = packet.packet_id
        assert packet_id not in self.sent, "sent twice on one connection"
        if packet_id in self._again:
            assert packet.dup
        if packet.dup and packet_id in self.last:
            assert as_sent(packet) == as_sent(self.last[packet_id])
        self._again.discard(packet_id)
        self.sent[packet_id] = self.last[packet_id] = packet

    def all_came_again(self) -> bool:
        """Whether what was in flight when it connected has come."""
        return not self._again

    def acknowledge(self, count: int) -> None:
        """Acknowledge some of what is in flight, in any order."""
        for _ in range(count):
            if self.released and self.chance.random() < 0.4:
                packet_id = self.chance.choice(sorted(self.released))
                self.released.remove(packet_id)
                self.received.discard(packet_id)
                self.client.send(Ack(PUBCOMP, packet_id))
            elif self.sent:
                packet_id = self.chance.choice(list(self.sent))
                kind = PUBACK if self.sent.pop(packet_id).qos == 1 else PUBREC
                if kind == PUBREC:
                    self.received.add(packet_id)
                self.client.send(Ack(kind, packet_id))


@final
class Round:
    """One seeded run: subscriptions come and go while messages are in flight."""

    def __init__(self, seed: int, version: int) -> None:
        self.chance = chance = random.Random(seed)
        self.window = chance.choice((3, 20, 500))
        self.sim = make_sim(
            config=Config(sys=QUIET, session=SessionConfig(inflight_max=self.window, feed_chunk=3)),
        )
        self.sim.suspends = chance.random() < 0.5
        if self.sim.suspends:
            self.sim.stop()
            self.sim.start()
        self.publisher = Client(self.sim, "p")
        self.reader = Reader(self.sim, chance, version)
        self.other = Client(self.sim, "q")
        self.publisher.connect()
        self.other.connect()
        self.reader.connect()
        self.number = 0
        self.crashed = False

    def step(self) -> None:
        """Anything that may happen."""
        chance, client = self.chance, self.reader.client
        does = chance.choices(
            ("publish", "subscribe", "unsubscribe", "acknowledge", "reconnect", "restart"),
            (10, 6, 4, 3, 2, 1),
        )[0]
        if does == "publish":
            for _ in range(chance.randint(1, 3)):
                self.number += 1
                self.publisher.deliver(
                    chance.choice(TOPICS),
                    b"%d" % self.number,
                    qos=chance.choice((0, 1, 1, 2)),
                    retain=chance.random() < 0.4,
                )
        elif does == "subscribe":
            v5 = client.version == 5
            if chance.random() < 0.3:
                # While the store is asked for retained messages.
                self._publish_during(chance.choice((10, 200, 900)))
            client.subscribe(
                chance.choice(FILTERS),
                qos=chance.choice((0, 1, 2)),
                properties=identified(chance.randint(0, 4)) if v5 else EMPTY,
                no_local=v5 and chance.random() < 0.2,
                retain_as_published=v5 and chance.random() < 0.5,
                retain_handling=chance.choice((0, 1, 2)) if v5 else 0,
            )
        elif does == "unsubscribe":
            client.unsubscribe(chance.choice(FILTERS))
        elif does == "acknowledge":
            self.reader.acknowledge(chance.randint(1, 4))
        else:
            self._come_back(restart=does == "restart")
        self.sim.run_for(self.chance.choice((100, 5_000, 100_000)))
        self.reader.take()

    def _publish_during(self, delay_us: int) -> None:
        self.number += 1
        topic, body = self.chance.choice(TOPICS), b"%d" % self.number
        assert self.sim.scheduler is not None
        self.sim.scheduler.call_later(delay_us, lambda: self.other.publish(topic, body))

    def _come_back(self, *, restart: bool) -> None:
        self.sim.run_for(50_000)
        self.reader.take()
        if restart:
            self.crashed = True
            self.sim.kill()
            self.sim.start()
            self.publisher.connect()
            self.other.connect()
        elif self.chance.random() < 0.5:
            self.reader.client.cut()
        else:
            self.reader.client.disconnect()
        if self.chance.random() < 0.5:
            self.number += 1
            self.publisher.deliver(self.chance.choice(TOPICS), b"%d" % self.number)
        self.reader.connect()
        self.sim.run_for(300_000)
        self.reader.take()
        # A crash takes back acknowledgements too, and what they were for fills a small window.
        assert self.reader.all_came_again() or (self.crashed and self.window < 500)


@pytest.mark.spec("MQTT-4.4.0-1")
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("seed", range(25))
def test_what_comes_again_is_what_came(seed: int, version: int) -> None:
    """Subscriptions that overlap begin, change and end while messages are in flight."""
    run = Round(seed, version)
    for _ in range(60):
        run.step()
    run._come_back(restart=True)


@pytest.mark.spec("MQTT-4.4.0-1")
def test_a_subscription_holds_from_when_it_is_made() -> None:
    """A store in a server takes its time to say whether anything is retained: what is published
    meanwhile is not the subscription's, then and when the client comes back."""
    sim = make_sim()
    publisher, reader = Client(sim, "p"), Client(sim, "r", acks=False)
    publisher.connect()
    reader.connect()
    publisher.deliver("other", retain=True)

    async def slowly() -> None:
        assert sim.scheduler is not None
        gate = sim.scheduler.gate()
        sim.scheduler.call_later(5_000, gate.open)
        await gate

    sim.store.pause = slowly
    assert sim.scheduler is not None
    sim.scheduler.call_later(3_000, lambda: publisher.publish("t", b"before"))
    reader.subscribe("t", qos=1)
    publisher.deliver("t", b"after")
    assert reader.payloads() == [b"after"]
    reader.cut()
    reader.connect()
    assert reader.payloads() == [b"after"]
    assert [(p.packet_id, p.dup) for p in reader.messages] == [(1, False), (1, True)]


def test_a_message_retained_while_the_store_was_asked_is_not_missed() -> None:
    sim = make_sim()
    publisher, reader = Client(sim, "p"), Client(sim, "r")
    publisher.connect()
    reader.connect()
    publisher.deliver("other", retain=True)
    waits = [5_000]

    async def slowly() -> None:
        assert sim.scheduler is not None
        gate = sim.scheduler.gate()
        sim.scheduler.call_later(waits.pop() if waits else 0, gate.open)
        await gate

    inner = sim.store.get_retained

    async def asked_before(topic: str) -> object:
        found = await inner(topic)
        await slowly()
        return found

    sim.store.get_retained = asked_before  # type: ignore[method-assign, assignment]
    assert sim.scheduler is not None
    sim.scheduler.call_later(3_000, lambda: publisher.publish("t", b"kept", retain=True))
    reader.subscribe("t", qos=1)
    assert reader.payloads() == [b"kept"]


def test_changed_subscriptions_are_not_remembered_without_end() -> None:
    """While a message stays unacknowledged each change is remembered, up to a bound."""
    sim = make_sim(config=Config(sys=QUIET, session=SessionConfig(subscriptions_max=5)))
    publisher, reader = Client(sim, "p"), Client(sim, "r", acks=False)
    publisher.connect()
    reader.connect()
    reader.subscribe("t", qos=1)
    refused = 0
    for number in range(20):
        publisher.deliver("t", b"x")
        refused += 0x97 in reader.subscribe("t", qos=1 + number % 2).reasons
        reader.subscribe("u", qos=1)
        reader.unsubscribe("u")
    session = sim.live.services.registry.live["r"]
    assert refused
    assert len(session.ended) <= 10
    for packet in list(reader.messages):
        kind = PUBACK if packet.qos == 1 else PUBREC
        reader.send(
            Ack(kind, packet.packet_id),
            *([Ack(PUBCOMP, packet.packet_id)] if kind == PUBREC else []),
        )
    sim.run_for(2_000_000)
    assert not session.ended
    assert reader.subscribe("t", qos=0).reasons == [0]
