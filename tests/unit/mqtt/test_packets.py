"""Packets as values: equality, readable form, and what must not be printed."""

from __future__ import annotations

import pytest

from perdure.mqtt import packets as p
from perdure.mqtt.packets import Connect, Publish
from tests.unit.mqtt.vectors import VECTORS


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


def test_every_packet_can_be_printed() -> None:
    for vector in VECTORS:
        assert repr(vector.packet).startswith(type(vector.packet).__name__ + "(")
