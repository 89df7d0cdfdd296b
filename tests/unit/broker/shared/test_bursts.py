"""Bursts to a group, whose shares are given, stored and sent in one step."""

from __future__ import annotations

import asyncio
from typing import TypeAlias

from hypothesis import example, given, settings
from hypothesis import strategies as st

from perdure.model import InboxEntry
from perdure.mqtt.packets import PUBACK, Ack, Publish
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import Client, make_sim
from tests.unit.broker.sharing import NAME, connect_publisher

Step: TypeAlias = tuple[str, int]

_KINDS = st.sampled_from(["plain"] * 6 + ["qos2", "retained", "expires", "other"])
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("burst"), st.lists(_KINDS, min_size=2, max_size=40)),
        st.tuples(st.sampled_from(["cut", "back", "hold"]), st.integers(0, 3)),
        st.tuples(st.just("kill"), st.booleans()),
    ),
    min_size=1,
    max_size=8,
)


class Scene:
    """Members of every kind: wide, narrow, one whose session ends with its connection, one more."""

    def __init__(self, sim: SimBroker) -> None:
        self.sim = sim
        self.publisher = connect_publisher(sim)
        self.members = [Client(sim, name) for name in ("wide", "narrow", "ephemeral", "last")]
        for member in self.members:
            self.connect(member)
        self.sent: dict[bytes, int] = {}
        self.disturbed = False

    def connect(self, member: Client) -> None:
        name = member.client_id
        member.connect(
            expiry_s=0 if name == "ephemeral" else 10_000,
            receive_maximum=3 if name == "narrow" else 500,
        )
        member.subscribe(NAME, qos=2)

    def burst(self, kinds: list[str]) -> None:
        packets = []
        for kind in kinds:
            body = b"%d" % len(self.sent)
            topic = "t/other" if kind == "other" else "t/a"
            qos = 2 if kind == "qos2" else 1
            packet_id = len(self.sent) + 1
            expiry_s = 9_000 if kind == "expires" else -1
            retain = kind == "retained"
            packets.append(Publish(topic, body, qos, retain, False, packet_id, 0, expiry_s))
            self.sent[body] = qos
        self.publisher.send(*packets)
        self.sim.run_for(500_000)

    def cut(self, number: int) -> None:
        self.disturbed = True
        if not self.members[number].is_lost:
            self.members[number].cut()

    def back(self, number: int) -> None:
        if self.members[number].is_lost:
            self.members[number].acks = True
            self.connect(self.members[number])

    def hold(self, number: int) -> None:
        """The member acknowledges nothing more on this connection; asked again, every other one."""
        self.disturbed = True
        member = self.members[number]
        if member.is_lost:
            return
        if member.acks:
            member.acks = False
            return
        for message in [m for m in member.take_all(Publish) if m.qos == 1][::2]:
            member.send(Ack(PUBACK, message.packet_id))
            member.answered.append(message)
        self.sim.run_for(500_000)

    def kill(self, power: bool) -> None:
        self.disturbed = True
        self.sim.run_for(3_000_000)
        self.sim.kill(power=power)
        self.sim.start()
        self.publisher = connect_publisher(self.sim)

    def kept(self) -> list[InboxEntry]:
        """What the store has for the group, and for nobody yet."""
        self.sim.run_for(3_000_000)
        return asyncio.run(self.sim.store.read_group_entries("g/t/#", limit=1_000))

    def untrimmed(self) -> list[InboxEntry]:
        """What the store has in private streams."""
        return [
            entry
            for member in self.members
            for entry in asyncio.run(
                self.sim.store.read_inbox(
                    member.client_id, after_offset=0, until_offset=2**62, limit=1_000
                )
            )
        ]

    def end(self) -> None:
        """Everybody is there and acknowledges; what was held is given again, or to others."""
        for number, member in enumerate(self.members):
            if not member.acks and not member.is_lost:
                member.cut()
            self.back(number)
        self.sim.run_for(3_000_000)


@settings(max_examples=40)
@given(_STEPS)
@example([("hold", 2), ("burst", ["plain"] * 20), ("hold", 2), ("cut", 2)])
@example([("hold", 2), ("burst", ["plain"] * 20), ("hold", 2), ("kill", True)])
def test_everybody_gets_a_share_and_nothing_is_lost(steps: list[Step]) -> None:
    scene = Scene(make_sim())
    for name, argument in steps:
        getattr(scene, name)(argument)
    scene.end()
    got = [message for member in scene.members for message in member.messages]
    settled = {message.payload for member in scene.members for message in member.answered}
    # What an ended session had of QoS 2 may have arrived there: it goes to nobody else.
    settled |= {message.payload for message in got if message.qos == 2}
    assert settled == set(scene.sent)
    assert scene.kept() == []
    if not scene.disturbed:
        assert scene.untrimmed() == []
    for body, qos in scene.sent.items():
        fresh = [each for each in got if each.payload == body and not each.dup]
        if qos == 2 or not scene.disturbed:
            assert len(fresh) == 1, body
    if not scene.disturbed:
        for member in scene.members:
            numbers = [int(message.payload) for message in member.messages]
            assert numbers == sorted(numbers)
            # Each has a serial number of its own, in the order of the private stream.
            ids = [message.packet_id for message in member.messages]
            assert ids == list(range(1, len(ids) + 1))
    scene.sim.stop()


def test_what_a_durable_member_is_given_one_by_one_is_kept_in_few_lists() -> None:
    sim = make_sim()
    publisher = connect_publisher(sim)
    member = Client(sim, "member", acks=False)
    member.connect(expiry_s=10_000, receive_maximum=500)
    member.subscribe(NAME, qos=1)
    for _ in range(100):
        publisher.deliver("t/a")
    session = sim.live.services.registry.live["member"]
    assert [len(run) for run in session.group_runs] == [64, 36]
    for message in member.messages[:64]:
        member.send(Ack(PUBACK, message.packet_id))
    sim.run_for(1_000)
    assert [len(run) for run in session.group_runs] == [36]
    publisher.deliver("t/a")
    assert [len(run) for run in session.group_runs] == [37]
    # What is left is another member's when this one goes.
    other = Client(sim, "other")
    other.connect(expiry_s=10_000, receive_maximum=500)
    other.subscribe(NAME, qos=1)
    member.cut()
    sim.run_for(1_000_000)
    assert len(other.messages) == 37
