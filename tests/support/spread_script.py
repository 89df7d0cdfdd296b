"""The same clients do the same things at one broker and at the nodes of a cluster, and tell what
they were sent. One that is told from the other by that is a defect of the cluster.

A script is drawn from a seed, step by step, from what its clients would do at any broker: nothing
that a broker answers decides what comes next but the identifiers of what is to be acknowledged.
Each step waits for its answer. Without haste nobody connects or goes before all that follows has
arrived, so everything must be the same. In haste a client may go with messages on their way, which
one broker has sent by then and a node has not: the same messages come in the same order of each
publisher, whether again or not, to sessions that last.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final, final

from perdure.model import Will
from perdure.mqtt.packets import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
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
    Unsuback,
)
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import Client

NAMES: Final = ("a", "b", "c", "d")
TOPICS: Final = ("t/1", "t/2", "u", "t")
FILTERS: Final = ("t/1", "t/+", "t/#", "#", "+", "u")
SETTLE_US: Final = 1_500_000
NO_MATCH: Final = 0x10


@final
class Spread:
    """Plays a script.

    Args:
        seed: of the script; where clients connect is for ``place``.
        place: the broker, or one of the nodes, for the next connection.
        is_hasty: see above.

    Attributes:
        told: what each step has brought, of each client.
    """

    def __init__(
        self, seed: int, place: Callable[[], SimBroker], *, is_hasty: bool = False
    ) -> None:
        self._chance = random.Random(seed)
        self._place = place
        self._is_hasty = is_hasty
        self._all: dict[str, list[Client]] = {name: [] for name in NAMES}
        self._clients: dict[str, Client] = {}
        self._versions = {name: 4 if name == "d" else 5 for name in NAMES}
        self._held: dict[str, bool] = dict.fromkeys(NAMES, False)
        self._seen: dict[str, int] = dict.fromkeys(NAMES, 0)
        self._expiring: dict[bytes, tuple[int, int]] = {}
        """When a message was published, and how long it lasts, by payload."""
        self._bodies = 0
        self._sim = place()
        self.told: list[str] = []

    def play(self, steps: int) -> list[str]:
        """Take so many steps, and have everybody acknowledge and come back at the end."""
        for _ in range(steps):
            kind = self._chance.choice(
                ("connect",) * 4
                + ("publish",) * 9
                + ("subscribe",) * 5
                + ("unsubscribe",) * 3
                + ("cut", "leave", "hold", "release", "elapse", "burst")
            )
            name = self._chance.choice(NAMES)
            getattr(self, f"_{kind}")(name)
        for name in NAMES:
            if self._is_hasty:
                self._connect(name)
            self._release(name)
        self._settle("end")
        return self.told

    def arrivals(self) -> dict[tuple[str, str], list[bytes]]:
        """By subscriber and publisher the messages of QoS 1 and 2 that came, each where it came
        first."""
        found: dict[tuple[str, str], dict[bytes, None]] = {}
        for name, clients in self._all.items():
            for packet in (each for client in clients for each in client.messages if each.qos):
                publisher = packet.payload[:1].decode()
                found.setdefault((name, publisher), {})[packet.payload] = None
        return {key: list(bodies) for key, bodies in found.items()}

    # -- steps -----------------------------------------------------------------------------

    def _connect(self, name: str) -> None:
        chance = self._chance
        clean = chance.random() < 0.3
        expiry_s = chance.choice((0, 5, 600, 600, 600))
        window = chance.choice((None, None, 1, 3))
        will = None
        if chance.random() < 0.4:
            delay_s = chance.choice((0, 0, 2, 30))
            will = Will(
                chance.choice(TOPICS),
                self._body("will"),
                chance.choice((0, 1, 2)),
                chance.random() < 0.3,
                delay_s=delay_s if self._versions[name] == 5 else 0,
            )
        if self._is_hasty:
            clean, expiry_s, will = False, 600, None
        self._settle_unless_hasty()
        version = self._versions[name]
        client = Client(self._place(), name, version=version, acks=False)
        self._held[name] = False
        old, self._clients[name] = self._clients.get(name), client
        self._all[name].append(client)
        self._seen[name] = 0
        client.open()
        properties = Properties()
        if version == 5:
            properties = Properties(session_expiry_interval=expiry_s, receive_maximum=window)
        client.send(Connect(version, clean, 0, name, will=will, properties=properties))
        connack = client.take(Connack)
        self._say(name, f"CONNACK {connack.session_present} {connack.reason}")
        if self._is_hasty:
            return
        self._settle("connected")
        if old is not None and not old.is_lost:
            self._say(name, "the old connection is still there")
        if old is not None:
            reasons = [each.reason for each in old.received if isinstance(each, Disconnect)]
            self._say(name, f"the old connection was told {reasons}")

    def _publish(self, name: str) -> None:
        chance = self._chance
        topic, qos = chance.choice(TOPICS), chance.choice((0, 1, 2))
        retain = chance.random() < 0.3
        body = b"" if retain and chance.random() < 0.3 else self._body(name)
        expiry_s = chance.choice((-1, -1, 3, 60))
        client = self._there(name)
        if client is None:
            return
        self._send(client, topic, body, qos, retain, expiry_s)
        self._perhaps_settle(f"{name} published {topic} {body!r} at {qos}")

    def _burst(self, name: str) -> None:
        """Several that wait for no answer."""
        count, qos = self._chance.randrange(2, 12), self._chance.choice((1, 2))
        topic = self._chance.choice(TOPICS)
        bodies = [self._body(name) for _ in range(count)]
        client = self._there(name)
        if client is None:
            return
        ids = [client.publish(topic, body, qos=qos) for body in bodies]
        for packet_id in ids:
            self._see_through(client, packet_id, qos)
        self._perhaps_settle(f"{name} published {count} to {topic} at {qos}")

    def _subscribe(self, name: str) -> None:
        chance = self._chance
        wishes = []
        for topic_filter in chance.sample(FILTERS, chance.choice((1, 1, 2))):
            is_shared = topic_filter.startswith("$share")
            qos, no_local = chance.choice((0, 1, 2)), chance.random() < 0.3
            as_published, handling = chance.random() < 0.4, chance.choice((0, 0, 1, 2))
            wish = SubscribeFilter(topic_filter, qos)
            if self._versions[name] == 5:
                wish = SubscribeFilter(
                    topic_filter, qos, no_local and not is_shared, as_published, handling
                )
            wishes.append(wish)
        identifier = chance.choice((0, 0, 7, 300))
        client = self._there(name)
        if client is None:
            return
        properties = Properties()
        if identifier and self._versions[name] == 5:
            properties = Properties(subscription_identifiers=(identifier,))
        client.send(Subscribe(60_000, wishes, properties))
        suback = client.take(Suback)
        self._say(name, f"SUBACK {suback.reasons}")
        what = f"{name} subscribed {[wish.filter for wish in wishes]}"
        if self._is_hasty:
            self._perhaps_settle(what)
        else:
            # What is published before all that is retained was sent comes in a way that depends on
            # how far that has come.
            self._settle(what)

    def _unsubscribe(self, name: str) -> None:
        topic_filter = self._chance.choice(FILTERS)
        client = self._there(name)
        if client is None:
            return
        client.unsubscribe(topic_filter)
        client.take_all(Unsuback)
        self._perhaps_settle(f"{name} unsubscribed {topic_filter}")

    def _cut(self, name: str) -> None:
        self._settle_unless_hasty()
        client = self._there(name)
        if client is not None:
            client.cut()
            del self._clients[name]
            self._settle_unless_hasty()

    def _leave(self, name: str) -> None:
        reason = self._chance.choice((0, 0, 4))
        expiry_s = self._chance.choice((None, None, 0, 3))
        self._settle_unless_hasty()
        client = self._there(name)
        if client is not None:
            if self._versions[name] == 4 or self._is_hasty:
                reason, expiry_s = 0, None
            client.disconnect(reason=reason, expiry_s=expiry_s)
            del self._clients[name]
            self._settle_unless_hasty()

    def _hold(self, name: str) -> None:
        """It acknowledges nothing more."""
        self._held[name] = True

    def _release(self, name: str) -> None:
        self._held[name] = False
        self._settle(f"{name} acknowledges")

    def _elapse(self, _name: str) -> None:
        seconds = self._chance.choice((1, 4, 10, 35))
        self._sim.run_for(seconds * 1_000_000)
        self._settle(f"{seconds} s")

    # -- doing -----------------------------------------------------------------------------

    def _there(self, name: str) -> Client | None:
        client = self._clients.get(name)
        return None if client is None or client.is_lost else client

    def _body(self, name: str) -> bytes:
        self._bodies += 1
        return b"%s%d" % (name.encode(), self._bodies)

    def _send(
        self, client: Client, topic: str, body: bytes, qos: int, retain: bool, expiry_s: int
    ) -> None:
        if client.version == 4 or self._is_hasty:
            expiry_s = -1
        if body:
            self._expiring[body] = (self._sim.clock.monotonic_us(), expiry_s)
        packet_id = client.publish(topic, body, qos=qos, retain=retain, expiry_s=expiry_s)
        self._see_through(client, packet_id, qos)

    def _see_through(self, client: Client, packet_id: int, qos: int) -> None:
        """Wait for the end of an exchange that a client has begun; at QoS 0 for a PINGRESP."""
        if not qos:
            client.send(Pingreq())
            client.take(Pingresp)
        for kind in ((), (PUBACK,), (PUBREC, PUBCOMP))[qos]:
            ack = _take_ack(client, kind, packet_id)
            if ack.reason not in (0, NO_MATCH):
                self._say(client.client_id, f"refused {ack}")
                return
            if kind == PUBREC:
                client.send(Ack(PUBREL, packet_id))

    def _settle_unless_hasty(self) -> None:
        if not self._is_hasty:
            self._settle("all is quiet")

    def _perhaps_settle(self, what: str) -> None:
        if self._chance.random() < 0.4:
            self._settle(what)

    def _settle(self, what: str) -> None:
        """Let everything arrive, be acknowledged by who does that, and be told."""
        while True:
            self._sim.run_for(SETTLE_US)
            took = [self._take(name) for name in NAMES]
            if not any(took):
                break
        self.told.append(f"-- {what}")

    def _take(self, name: str) -> bool:
        """What a client was sent; whether it has said something about that."""
        client = self._there(name)
        if client is None:
            return False
        for packet in client.messages[self._seen[name] :]:
            self._say(name, _text(packet))
            if client.version == 5 and self._expiring.get(packet.payload, (0, -1))[1] >= 0:
                self._check_rest(packet)
        self._seen[name] = len(client.messages)
        if self._held[name]:
            return False
        answers = [each for packet in client.received for each in _answers(packet)]
        client.received = [each for each in client.received if not _answers(each)]
        if answers:
            client.send(*answers)
        return bool(answers)

    def _check_rest(self, packet: Publish) -> None:
        """A message has the rest of its time, perhaps some of this look less."""
        published_us, expiry_s = self._expiring[packet.payload]
        age_s = (self._sim.clock.monotonic_us() - published_us) / 1_000_000
        assert packet.dup or expiry_s - age_s - 1 <= packet.expiry_s <= expiry_s, packet

    def _say(self, name: str, what: str) -> None:
        self.told.append(f"{name}: {what}")


def _answers(packet: Packet) -> Sequence[Ack]:
    if isinstance(packet, Publish) and packet.qos:
        return [Ack(PUBACK if packet.qos == 1 else PUBREC, packet.packet_id)]
    if isinstance(packet, Ack) and packet.kind == PUBREL:
        return [Ack(PUBCOMP, packet.packet_id)]
    return []


def _take_ack(client: Client, kind: int, packet_id: int) -> Ack:
    found: list[Ack] = []

    def look() -> bool:
        for packet in client.received:
            if isinstance(packet, Ack) and (packet.kind, packet.packet_id) == (kind, packet_id):
                found.append(packet)
                client.received.remove(packet)
                return True
        return False

    came = client.sim.run_until(look, limit_us=30_000_000)
    assert came, f"no answer to {packet_id} of {client.client_id}: {client.received}"
    return found[0]


def _text(packet: Publish) -> str:
    return (
        f"{packet.topic} {packet.payload!r} qos {packet.qos} id {packet.packet_id}"
        f"{' retain' * packet.retain}{' dup' * packet.dup} {sorted(packet.identifiers)}"
    )
