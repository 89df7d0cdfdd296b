"""What it costs that a connection is gone: a thousand may go at once."""

from __future__ import annotations

import gc
import sys
from types import FrameType
from typing import Any

import pytest

from tests.unit.broker.harness import Client, make_sim


def calls_of_a_cut(waiting: int, *, expiry_s: int) -> int:
    """Calls of functions of Python while a connection goes that has so much in flight."""
    sim = make_sim()
    reader, writer = Client(sim, "r", acks=False), Client(sim, "w")
    for client in (reader, writer):
        client.connect(expiry_s=expiry_s)
    reader.subscribe("t", qos=1)
    for _ in range(waiting):
        writer.deliver("t")
    assert len(reader.messages) == waiting
    count = 0

    def called(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    gc.disable()  # what other tests have left ends in calls, too
    sys.setprofile(called)
    try:
        reader.cut()
    finally:
        sys.setprofile(before)
        gc.enable()
    return count


@pytest.mark.parametrize("expiry_s", [0, 3600])
def test_it_does_not_grow_with_what_is_in_flight(expiry_s: int) -> None:
    few, many = (calls_of_a_cut(waiting, expiry_s=expiry_s) for waiting in (2, 60))
    assert many <= few + 10
