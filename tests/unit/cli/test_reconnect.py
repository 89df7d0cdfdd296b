"""Pauses between attempts, and what is not tried twice."""

from __future__ import annotations

import random

import pytest

from perdure.cli.reconnect import PAUSE_MAX_S, STABLE_S, Backoff, is_final
from perdure.errors import MqttError


def test_pauses_double_up_to_a_bound_and_begin_anew_after_success() -> None:
    backoff = Backoff(random.Random(1), first_s=1.0)
    longest = [1.0, 2.0, 4.0, 8.0, 16.0, PAUSE_MAX_S, PAUSE_MAX_S]
    for bound in longest:
        assert bound / 2 <= backoff.pause_s() <= bound
    backoff.connected(STABLE_S / 2)
    assert backoff.pause_s() > PAUSE_MAX_S / 2 - 1
    backoff.connected(STABLE_S)
    assert backoff.pause_s() <= 1.0


def test_clients_do_not_come_back_together() -> None:
    pauses = {Backoff(random.Random(seed)).pause_s() for seed in range(50)}
    assert len(pauses) == 50


@pytest.mark.parametrize(
    ("version", "code", "final"),
    [
        (4, 1, True),
        (4, 2, True),
        (4, 3, False),
        (4, 4, True),
        (4, 5, True),
        (4, 0x81, True),
        (5, 0x80, False),
        (5, 0x85, True),
        (5, 0x86, True),
        (5, 0x87, True),
        (5, 0x88, False),
        (5, 0x8A, True),
        (5, 0x8B, False),
        (5, 0x8E, True),
        (5, 0x9F, False),
    ],
)
def test_what_is_final(version: int, code: int, final: bool) -> None:
    assert is_final(MqttError(code, ""), version) is final
    assert not is_final(ConnectionResetError(), version)
