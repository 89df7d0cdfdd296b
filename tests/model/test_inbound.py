"""``Inbound`` against a naive reference, through connections and crashes.

The reference is the client's view: an identifier is either free, or names one message until its
PUBREL. The durable part is the set of identifiers awaiting release, written with each message.
"""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from perdure.session.inbound import (
    RECEIVE_DUPLICATE,
    RECEIVE_EXCEEDED,
    RECEIVE_NEW,
    Inbound,
)
from tests.model.machines import MACHINE

PACKET_IDS = st.sampled_from([1, 2, 3, 65_534, 65_535])


class InboundMachine(RuleBasedStateMachine):
    """One client that sends QoS 1 and 2, loses its connection, and sends again."""

    @initialize(receive_maximum=st.integers(1, 4))
    def begin(self, receive_maximum: int) -> None:
        self.receive_maximum = receive_maximum
        self.inbound = Inbound((), receive_maximum=receive_maximum)
        self.awaiting: set[int] = set()
        self.stored: set[int] = set()
        self.unacknowledged = 0

    @rule()
    def publish_qos1(self) -> None:
        allowed = self.unacknowledged < self.receive_maximum
        assert self.inbound.publish_qos1() == allowed
        if allowed:
            self.unacknowledged += 1
        else:
            self.resume(self.receive_maximum)  # 0x93: the connection is closed

    @rule(packet_id=PACKET_IDS)
    def publish_qos2(self, packet_id: int) -> None:
        result = self.inbound.publish_qos2(packet_id)
        if packet_id in self.awaiting:
            assert result == RECEIVE_DUPLICATE
        elif self.unacknowledged >= self.receive_maximum:
            assert result == RECEIVE_EXCEEDED
        else:
            assert result == RECEIVE_NEW
            self.awaiting.add(packet_id)
            self.unacknowledged += 1

    @rule(packet_id=PACKET_IDS)
    def refuse(self, packet_id: int) -> None:
        if packet_id in self.awaiting and packet_id not in self.stored:
            self.inbound.reject_qos2(packet_id)
            self.awaiting.discard(packet_id)
            self.unacknowledged = max(0, self.unacknowledged - 1)

    @rule(packet_id=PACKET_IDS)
    def release(self, packet_id: int) -> None:
        assert self.inbound.release(packet_id) == (packet_id in self.awaiting)
        if packet_id in self.awaiting:
            self.awaiting.discard(packet_id)
            self.inbound.acknowledged(1)
            self.unacknowledged = max(0, self.unacknowledged - 1)

    @rule()
    def acknowledge(self) -> None:
        self.inbound.acknowledged(1)
        self.unacknowledged = max(0, self.unacknowledged - 1)

    @rule()
    def commit(self) -> None:
        self.stored = set(self.awaiting)

    @rule(receive_maximum=st.integers(1, 4))
    def resume(self, receive_maximum: int) -> None:
        """A new connection, after a crash perhaps: what was stored is what is known."""
        self.receive_maximum = receive_maximum
        self.awaiting = set(self.stored)
        self.unacknowledged = 0
        self.inbound = Inbound(self.stored, receive_maximum=receive_maximum)

    @invariant()
    def same_state(self) -> None:
        if hasattr(self, "inbound"):
            assert self.inbound.awaiting_release.keys() == self.awaiting
            assert self.inbound.unacknowledged == self.unacknowledged


@pytest.mark.trap(9)
@pytest.mark.trap(10)
@pytest.mark.trap(11)
class TestInbound(
    InboundMachine.TestCase  # type: ignore[name-defined, misc]
):
    """Traps 9, 10 and 11, in any order of events."""

    settings = MACHINE
