"""Frames that the generator makes are what the codec reads, and shapes find them again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.bench.stamp import (
    NO_SHAPE,
    PAYLOAD_SIZE_MIN,
    STAMP,
    Stream,
    frame_bounds,
    shape_of,
)
from perdure.mqtt.encode import encode
from perdure.mqtt.packets import Publish
from tests.unit.bench.helpers import packets_of

TAG = 0xBEEF


def stream(qos: int = 1, version: int = 4, size: int = 64, topic: str = "bench/a") -> Stream:
    return Stream(7, topic, qos=qos, version=version, payload_size=size)


@given(
    qos=st.integers(0, 2),
    version=st.sampled_from([4, 5]),
    size=st.integers(PAYLOAD_SIZE_MIN, 20_000),
    topic=st.text("abc/é", min_size=1, max_size=40),
)
def test_a_frame_is_a_publish_with_its_stamp(qos: int, version: int, size: int, topic: str) -> None:
    maker = Stream(7, topic, qos=qos, version=version, payload_size=size, retain=True)
    frames = maker.frame(11, TAG, 99) + maker.frame(12, TAG, 100)
    first, second = packets_of(frames, version)
    assert isinstance(first, Publish)
    assert isinstance(second, Publish)
    assert (first.topic, first.qos, first.retain, len(first.payload)) == (topic, qos, True, size)
    assert (first.packet_id, second.packet_id) == ((11, 12) if qos else (0, 0))
    assert STAMP.unpack_from(first.payload) == (TAG, 7, 0, 99)
    assert STAMP.unpack_from(second.payload) == (TAG, 7, 1, 100)


@given(
    qos=st.integers(0, 2),
    version=st.sampled_from([4, 5]),
    size=st.integers(PAYLOAD_SIZE_MIN, 300),
    properties=st.binary(max_size=0) | st.just(b"\x01\x01"),
)
def test_a_shape_reads_what_any_encoder_wrote(
    qos: int, version: int, size: int, properties: bytes
) -> None:
    payload = STAMP.pack(TAG, 7, 3, 99) + bytes(size - STAMP.size)
    packet = Publish("bench/a", payload, qos, packet_id=513 if qos else 0)
    if version == 5:
        packet.forward = properties
    data = encode(packet, version)
    body, stop = frame_bounds(data, 0, len(data))
    assert stop == len(data)
    shape = shape_of(data, 0, body, stop, version=version)
    assert shape is not None
    expected = (513, TAG, 7, 3, 99) if qos else (TAG, 7, 3, 99)
    assert list(shape.unpack(data * 3)) == [expected] * 3
    assert shape.run(data * 3 + data[:-1], 0, len(data) * 4 - 1) == 3


def test_a_run_ends_before_another_kind_of_frame() -> None:
    frame = stream().frame(1, TAG, 0)
    body, stop = frame_bounds(frame, 0, len(frame))
    shape = shape_of(frame, 0, body, stop, version=4)
    assert shape is not None
    pubrel = b"\x62\x02\x00\x01"
    data = frame * 2 + pubrel + frame * 20
    assert shape.run(data, 0, len(data)) == 2
    again = frame * 2 + bytes((frame[0] | 8,)) + frame[1:] + frame
    assert shape.run(again, 0, len(again)) == 2


def test_a_publish_without_room_for_a_stamp_has_no_shape() -> None:
    data = encode(Publish("a", b"short", 1, packet_id=1), 4)
    body, stop = frame_bounds(data, 0, len(data))
    assert shape_of(data, 0, body, stop, version=4) is None


@pytest.mark.parametrize("size", [24, 200, 20_000, 2_100_000])
def test_bounds_are_unknown_until_the_frame_is_complete(size: int) -> None:
    frame = stream(size=size).frame(1, TAG, 0)
    head = len(frame) - size - len("bench/a") - 4
    assert frame_bounds(frame, 0, len(frame)) == (head, len(frame))
    for cut in (0, 1, head - 1, head, len(frame) - 1):
        assert frame_bounds(frame[:cut], 0, cut)[1] == -1
    moved = b"\x00" * 5 + frame
    assert frame_bounds(moved, 5, len(moved)) == (head + 5, len(moved))


def test_a_length_of_more_than_four_bytes_never_completes() -> None:
    data = b"\x32" + b"\xff" * 8
    assert frame_bounds(data, 0, len(data))[1] == -1


def test_the_shape_of_nothing_matches_no_publish() -> None:
    for qos in (0, 1, 2):
        assert not stream(qos).frame(1, TAG, 0).startswith(NO_SHAPE.head)
