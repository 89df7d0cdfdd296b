"""What a simulation may contain: faults, and the settings of its broker."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

from perdure.config.schema import (
    Config,
    RetentionConfig,
    SessionConfig,
    SharedConfig,
    StorageConfig,
    SysConfig,
)

STEPS: Final = 120


@dataclass
class Plan:
    """What a run may contain; ``of`` draws one from a seed.

    Attributes:
        steps: events of the fault phase.
        crashes, storage_faults, generations: whether there are any.
        power_cuts: crashes may take what was not synced with them.
        suspends: reads of the store wait, as a server's would.
        rests: commits are spaced and the broker rests between them, although few messages come.
        limits: turns take few messages, so that publishers queue to be read from.
        clock_steps: somebody sets the wall clock.
        config: of the broker.
        durability: of the listener; empty = the broker's.
    """

    steps: int = STEPS
    crashes: bool = True
    power_cuts: bool = True
    storage_faults: bool = True
    generations: bool = True
    suspends: bool = False
    rests: bool = False
    limits: bool = False
    clock_steps: bool = False
    config: Config = field(default_factory=Config)
    durability: str = ""

    @classmethod
    def of(cls, chance: random.Random) -> Plan:
        """A plan with small windows and pages, so that every edge is met often."""
        config = Config(
            session=SessionConfig(
                inflight_max=chance.choice((2, 5, 20, 1000)),
                memory_pending_max=chance.choice((2, 10, 1000)),
                feed_chunk=chance.choice((2, 7, 256)),
                outbound_buffer_bytes=chance.choice((4096, 65_536)),
            ),
            storage=StorageConfig(
                commit_interval_us=chance.choice((0, 500, 3000)),
                commit_messages_max=chance.choice((1, 20, 1000)),
                commit_queue_max=chance.choice((20, 50_000)),
            ),
            retention=RetentionConfig(time_s=0, check_interval_s=3600),
            shared=SharedConfig(),
            sys=SysConfig(interval_s=0),
        )
        return cls(
            crashes=chance.random() < 0.8,
            storage_faults=chance.random() < 0.4,
            generations=chance.random() < 0.4,
            suspends=chance.random() < 0.25,
            limits=chance.random() < 0.4,
            clock_steps=chance.random() < 0.25,
            config=config,
        )
