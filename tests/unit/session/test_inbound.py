"""What a session's client sends."""

from __future__ import annotations

import pytest

from perdure.session.inbound import (
    RECEIVE_DUPLICATE,
    RECEIVE_EXCEEDED,
    RECEIVE_NEW,
    Inbound,
)


@pytest.mark.trap(10)
@pytest.mark.trap(11)
@pytest.mark.spec("MQTT-4.3.3-10")
def test_the_same_identifier_is_the_same_message_until_release() -> None:
    """Traps 10 and 11: a duplicate is never taken twice, and never a protocol error."""
    inbound = Inbound((), receive_maximum=10)
    assert inbound.publish_qos2(7) == RECEIVE_NEW
    assert inbound.publish_qos2(7) == RECEIVE_DUPLICATE
    assert inbound.publish_qos2(7) == RECEIVE_DUPLICATE
    assert inbound.unacknowledged == 1
    assert inbound.release(7)
    assert not inbound.release(7)
    assert inbound.publish_qos2(7) == RECEIVE_NEW


@pytest.mark.trap(10)
def test_identifiers_of_an_earlier_connection_are_known() -> None:
    inbound = Inbound([3, 5], receive_maximum=1)
    assert inbound.publish_qos2(5) == RECEIVE_DUPLICATE
    assert inbound.publish_qos2(4) == RECEIVE_NEW
    assert set(inbound.awaiting_release) == {3, 4, 5}


@pytest.mark.trap(9)
def test_identifiers_of_an_earlier_connection_do_not_fill_the_quota() -> None:
    """Trap 9: a client that never releases still has its whole receive maximum later."""
    inbound = Inbound(range(1, 100), receive_maximum=2)
    assert inbound.publish_qos2(100) == RECEIVE_NEW
    assert inbound.publish_qos1()
    assert inbound.publish_qos2(101) == RECEIVE_EXCEEDED


@pytest.mark.spec("MQTT-3.3.4-9")
def test_receive_maximum_counts_both_qos() -> None:
    inbound = Inbound((), receive_maximum=2)
    assert inbound.publish_qos1()
    assert inbound.publish_qos2(1) == RECEIVE_NEW
    assert inbound.publish_qos2(1) == RECEIVE_DUPLICATE
    assert inbound.publish_qos2(2) == RECEIVE_EXCEEDED
    assert 2 not in inbound.awaiting_release
    inbound.acknowledged(1)
    assert inbound.publish_qos2(2) == RECEIVE_NEW
    assert not inbound.publish_qos1()


def test_a_refused_message_frees_its_identifier_and_its_place() -> None:
    inbound = Inbound((), receive_maximum=1)
    assert inbound.publish_qos2(1) == RECEIVE_NEW
    inbound.reject_qos2(1)
    assert inbound.publish_qos2(1) == RECEIVE_NEW
    assert not inbound.release(2)


def test_a_late_acknowledgement_does_not_widen_the_quota() -> None:
    inbound = Inbound([9], receive_maximum=1)
    assert inbound.release(9)
    inbound.acknowledged(1)
    assert inbound.unacknowledged == 0
    assert inbound.publish_qos1()
    assert not inbound.publish_qos1()
