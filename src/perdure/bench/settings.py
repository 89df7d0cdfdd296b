"""What a run was asked to do: everything that its record needs to repeat it."""

from __future__ import annotations

from typing import Final, final

import msgspec

from perdure.bench.stamp import PAYLOAD_SIZE_MIN
from perdure.errors import UsageError

WINDOW_MAX: Final = 65_535
"""Packet identifiers bound what one publisher can have unacknowledged."""


@final
class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """One run.

    Attributes:
        scenario: its name.
        version: MQTT protocol level, 4 (3.1.1) or 5 (5.0).
        qos: of messages and subscriptions.
        publishers, subscribers: clients of each kind; sessions where only those count.
        messages: scenarios with a fixed amount: messages for each subscriber or stream.
        size: payload bytes.
        window: messages that a publisher may have unacknowledged.
        rate: open loop: messages per second of all publishers; 0 = closed loop.
        duration_s, warmup_s: measured, and before it.
        quiet_s: what has not come after so long without anything coming is lost.
        settle_s: before memory is read: the broker ends what it does after clients came or went.
        shared: the subscribers are members of one shared group.
        durable: subscribers have durable sessions.
        offline, retained, recorded: what lies idle in the broker meanwhile: offline durable
            sessions on one wildcard that matches everything, retained messages, and recorded
            messages that nobody waits for.
        restart: the broker is killed and started again before messages are taken back.
        nodes: of a cluster, ``host:port``; empty = it is one broker.
        seed: names clients and topics.
    """

    scenario: str
    version: int = 4
    qos: int = 1
    publishers: int = 1
    subscribers: int = 1
    messages: int = 0
    size: int = 64
    window: int = 16
    rate: float = 0.0
    duration_s: float = 10.0
    warmup_s: float = 2.0
    quiet_s: float = 5.0
    settle_s: float = 2.0
    shared: bool = False
    durable: bool = True
    offline: int = 0
    retained: int = 0
    recorded: int = 0
    restart: bool = False
    nodes: tuple[str, ...] = ()
    seed: int = 1

    def __post_init__(self) -> None:
        if self.version not in (4, 5) or self.qos not in (0, 1, 2):
            raise UsageError("version is 4 or 5, QoS 0, 1 or 2")
        if self.size < PAYLOAD_SIZE_MIN:
            raise UsageError(f"the stamp alone has {PAYLOAD_SIZE_MIN} bytes")
        if not 1 <= self.window <= WINDOW_MAX or self.publishers < 1 or self.subscribers < 1:
            raise UsageError("a window of 1 to 65,535 and at least one client of each kind")

    @property
    def tag(self) -> int:
        """What the payloads of the run begin with."""
        return self.seed & 0xFFFF_FFFF

    @property
    def root(self) -> str:
        """Topic level that all topics and client identifiers of the run begin with."""
        return f"bench-{self.tag:08x}"

    @property
    def window_open(self) -> int:
        """Open loop: a bound against a broker that does not answer, not a pace."""
        return max(self.window, 1000)

    @property
    def loop(self) -> str:
        """The load in words."""
        if self.rate:
            return f"open loop, {self.rate:g}/s"
        return f"closed loop, window {self.window}"
