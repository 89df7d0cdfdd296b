"""Packets as values: equality, readable form, and what must not be printed."""

from __future__ import annotations

import pytest
from tests.unit.mqtt.vectors import VECTORS

from perdure.mqtt import packets as p
from perdure.mqtt.packets import EMPTY, Connect, Properties, Publish


def test_kinds_have_their_numbers_and_names() -> None:
    names = {name: value for name, value in vars(p).items() if name in p.KIND_NAMES}
    assert names == {name: number for number, name in enumerate(p.KIND_NAMES) if number}
    for vector in VECTORS:
        assert vector.packet.kind == vector.raw[0] >> 4


def test_packets_are_equal_by_value_and_of_one_class() -> None:
    for one in VECTORS:
        for other in VECTORS:
            same = one.packet.kind == other.packet.kind and repr(one.packet) == repr(other.packet)
            if one is other or (same and one.packet.kind != p.CONNECT):
                assert one.packet == other.packet
            elif one.packet.kind != p.CONNECT:
                assert one.packet != other.packet
    assert p.Pingreq() == p.Pingreq()
    assert p.Pingreq() != p.Pingresp()
    assert Publish("a", b"") != "a"


def test_packets_are_not_hashable() -> None:
    with pytest.raises(TypeError):
        hash(Publish("a", b""))


def test_a_password_is_not_printed() -> None:
    packet = Connect(5, True, 0, "c", "u", b"secret")
    assert "secret" not in repr(packet)
    assert "***" in repr(packet)
    assert "***" not in repr(Connect(5, True, 0, "c", "u"))


def test_properties_say_what_is_there() -> None:
    properties = Properties(reason_string="r", maximum_qos=0, user_properties=(("a", "b"),))
    assert properties.present() == {
        "maximum_qos": 0,
        "reason_string": "r",
        "user_properties": (("a", "b"),),
    }
    assert repr(properties) == (
        "Properties(maximum_qos=0, reason_string='r', user_properties=(('a', 'b'),))"
    )


def test_a_copy_can_be_changed_alone() -> None:
    properties = Properties(reason_string="r", receive_maximum=3)
    copy = properties.copy()
    assert copy == properties
    copy.reason_string = None
    assert properties.reason_string == "r"
    assert copy.receive_maximum == 3
    assert Properties() == EMPTY


def test_every_packet_can_be_printed() -> None:
    for vector in VECTORS:
        assert repr(vector.packet).startswith(type(vector.packet).__name__ + "(")
