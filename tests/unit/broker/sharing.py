"""Members of one group and a publisher, for tests of shared subscriptions."""

from __future__ import annotations

from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import Client

NAME = "$share/g/t/#"


def connect_publisher(sim: SimBroker) -> Client:
    """A publisher that leaves nothing behind."""
    publisher = Client(sim, "p")
    publisher.connect(expiry_s=0, clean=True)
    return publisher


def connect_member(
    sim: SimBroker, name: str, *, acks: bool = True, qos: int = 1, window: int = 100
) -> Client:
    """A connected member of the group."""
    member = Client(sim, name, acks=acks)
    member.connect(receive_maximum=window)
    member.subscribe(NAME, qos=qos)
    return member


def send_numbers(publisher: Client, count: int, *, first: int = 0, qos: int = 1) -> list[bytes]:
    """Publish numbered messages; their payloads."""
    bodies = [b"%d" % number for number in range(first, first + count)]
    for body in bodies:
        publisher.publish("t/a", body, qos=qos)
    publisher.sim.run_for(100_000)
    return bodies


def payloads_of(*members: Client) -> list[bytes]:
    """Payloads of all that came to some members, in the order they were published in."""
    for member in members:
        member.sim.run_for(200_000)
    return sorted((m.payload for member in members for m in member.messages), key=int)
