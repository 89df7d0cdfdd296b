"""The inbox on its own: what is new, what is a repeat, what is owed."""

from __future__ import annotations

import pytest

from perdure.errors import MqttError
from perdure.mqtt.client_inbox import NEW, REPEATED, WAITING, Inbox
from perdure.mqtt.packets import Publish


def _two(packet_id: int) -> Publish:
    return Publish("a", b"", 2, packet_id=packet_id)


def test_qos_2_is_new_once() -> None:
    inbox = Inbox(None, None)
    assert inbox.take(_two(1)) == NEW
    assert inbox.take(_two(1)) == WAITING
    assert inbox.settle(_two(1), 0)
    assert inbox.take(_two(1)) == REPEATED
    assert inbox.release(1) == 0
    assert inbox.release(1) == 0x92
    assert inbox.take(_two(1)) == NEW


def test_qos_1_is_always_new_and_qos_0_owes_nothing() -> None:
    inbox = Inbox(None, None)
    one = Publish("a", b"", 1, packet_id=1)
    assert inbox.take(one) == NEW
    assert inbox.settle(one, 0)
    assert inbox.take(one) == NEW
    zero = Publish("a", b"")
    assert inbox.take(zero) == NEW
    assert not inbox.settle(zero, 0)


def test_an_acknowledgement_of_the_other_qos_is_not_owed() -> None:
    inbox = Inbox(None, None)
    inbox.take(Publish("a", b"", 1, packet_id=1))
    assert not inbox.settle(_two(1), 0)
    assert inbox.settle(Publish("a", b"", 1, packet_id=1), 0)


def test_the_session_outlives_the_connection_and_the_rest_does_not() -> None:
    inbox = Inbox(None, 1)
    inbox.take(_two(1))
    inbox.settle(_two(1), 0)
    inbox.take(_two(2))  # the caller has not acknowledged it
    inbox.take(Publish("t", b"", topic_alias=1))
    inbox.close()
    inbox.open(session_present=True)
    assert inbox.take(_two(1)) == REPEATED
    assert inbox.take(_two(2)) == NEW
    with pytest.raises(MqttError):
        inbox.take(Publish("", b"", topic_alias=1))
    inbox.close()
    inbox.open(session_present=False)
    assert inbox.take(_two(1)) == NEW


def test_the_receive_maximum() -> None:
    inbox = Inbox(1, None)
    inbox.take(_two(1))
    with pytest.raises(MqttError) as caught:
        inbox.take(_two(2))
    assert caught.value.reason_code == 0x93
