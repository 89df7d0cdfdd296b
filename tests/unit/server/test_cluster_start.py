"""What a node refuses to begin with, and what it waits for."""

from __future__ import annotations

import asyncio

import pytest

from perdure.clock import SteadyClock
from perdure.config.load import load
from perdure.errors import ConfigError, StorageUnavailable
from perdure.server import cluster_start
from perdure.server.cluster_start import NEAR_US, PROBES_MAX, check_packets, settle
from perdure.server.log_clock import LogClock
from tests.support.clock import VirtualClock

RECORD_BYTES = 64 * 1024
MOST = RECORD_BYTES * 128


@pytest.mark.parametrize("size", [MOST, MOST + 1])
def test_every_message_that_clients_may_send_must_fit_into_the_log(size: int) -> None:
    config = load(environ={}, sets=[f"mqtt.packet_size_max={size}"]).config
    if size <= MOST:
        check_packets(config, RECORD_BYTES)
        return
    with pytest.raises(ConfigError, match="8388609 bytes, and the log takes 8388608") as refused:
        check_packets(config, RECORD_BYTES)
    assert refused.value.path == "mqtt.packet_size_max"
    assert "max.message.bytes" in refused.value.hint


class Probes:
    """A log whose records take their time.

    Args:
        took_us: each of them; None = the log has failed.

    Attributes:
        count: those that were sent.
    """

    def __init__(self, *took_us: int | None) -> None:
        self.machine = VirtualClock()
        self.clock = LogClock(self.machine)
        self.count = 0
        self._left = list(took_us)
        self.log_ahead_us = 3_600_000_000

    @property
    def log_us(self) -> int:
        return self.machine.now_us() + self.log_ahead_us

    def read(self, late_us: int) -> None:
        """A record comes so late."""
        entered_us = self.log_us
        self.machine.advance_us(late_us)
        self.clock.heard(entered_us)

    async def __call__(self) -> None:
        self.count += 1
        late_us = self._left.pop(0) if len(self._left) > 1 else self._left[0]
        if late_us is None:
            raise StorageUnavailable("gone")
        self.read(late_us)


@pytest.mark.parametrize("first_us", [2_000_000, 600_000, NEAR_US + 1])
async def test_a_node_counts_in_the_time_of_the_log_from_the_start(first_us: int) -> None:
    """It read what it has joined with late, for its process had only begun."""
    probes = Probes(first_us, 5_000)
    probes.read(first_us)
    await settle(probes, probes.clock)
    assert probes.count == 2
    steady = SteadyClock(probes.clock)
    assert 0 <= probes.log_us - steady.now_us() <= NEAR_US


async def test_a_log_that_is_slow_or_gone_does_not_keep_a_node_from_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = Probes(NEAR_US + 1)
    await settle(slow, slow.clock)
    assert slow.count == PROBES_MAX
    gone = Probes(None)
    await settle(gone, gone.clock)
    assert gone.count == 1
    monkeypatch.setattr(cluster_start, "SETTLE_S", 0.0)
    await settle(asyncio.Event().wait, slow.clock)  # type: ignore[arg-type]
