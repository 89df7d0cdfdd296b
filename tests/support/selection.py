"""Which of the tests that were collected a run takes.

Two variables of the environment choose, both by a seed that the run prints; without them all run.

- ``PERDURE_SAMPLE=seed`` (``make test``, ``.ci/run``): one in four of the tests that start
  processes and prove again, on real ones, what others prove, and of the seeds of simulations:
  those in the folders ``SAMPLED``, those of ``CONTRACT`` that ask a server, and those with the mark
  ``sampled``. Four seeds that follow each other take all of them; of those that ask Kafka, which
  starts Java machines, it is one in twelve outside CI.
- ``PERDURE_SHARE=part/of:seed`` (``.ci/run``): of the files in the folders that
  ``PERDURE_SHARED`` names those of one share; runs beside this one take the others. A compiled
  broker does to a server what the source does, so tests of servers are not shared.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

import pytest

SAMPLED: Final = ("tests/browser/", "tests/crash/", "tests/interop/", "tests/spark/")
CONTRACT: Final = "tests/contract/"
SAMPLED_ONE_IN: Final = 4
KAFKA_ONE_IN: Final = 12
SERVERS: Final = ("redis", "postgres", "kafka")
"""Marks of the tests that ask one."""


class Share(NamedTuple):
    """One of so many parts of the files in some folders."""

    part: int
    of: int
    seed: int
    folders: tuple[str, ...]

    def has(self, file: str) -> bool:
        """Whether a file is in this share, or in none."""
        if not any(file.startswith(f"{folder}/") for folder in self.folders):
            return True
        return (digest(file) + self.seed) % self.of == self.part


def digest(text: str) -> int:
    """The same number for a name in every run."""
    return zlib.crc32(text.encode())


def share() -> Share | None:
    """The share of this run; None = it takes all.

    Raises:
        pytest.UsageError: it can't be read.
    """
    given = os.environ.get("PERDURE_SHARE")
    if not given:
        return None
    try:
        fraction, seed = given.split(":")
        part, of = map(int, fraction.split("/"))
    except ValueError:
        part, of, seed = 0, 0, "0"
    if not 0 <= part < of:
        raise pytest.UsageError(f"PERDURE_SHARE={given}: 0/2:7 and 1/2:7 are halves by the seed 7")
    folders = os.environ.get("PERDURE_SHARED", "tests").split()
    return Share(part, of, int(seed), tuple(folders))


def is_in_sample(node: str, seed: int, group: str | None, *, servers: Sequence[str] = ()) -> bool:
    """Whether a run takes a test.

    Args:
        node: its node id.
        seed: of the run.
        servers: which of the marks ``SERVERS`` it has.
        group: for one with the mark ``sampled``: what is taken or left together with it, the test
            itself if empty.
    """
    sampled = group is not None or node.startswith(SAMPLED)
    sampled = sampled or (bool(servers) and node.startswith(CONTRACT))
    is_rare = "kafka" in servers and "PERDURE_CI" not in os.environ
    one_in = KAFKA_ONE_IN if is_rare else SAMPLED_ONE_IN
    return not sampled or (digest(group or node) + seed) % one_in == 0


def chosen(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests that this run takes, and the others."""
    seed, taken = os.environ.get("PERDURE_SAMPLE"), share()
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        takes = True
        servers = [name for name in SERVERS if item.get_closest_marker(name)]
        if seed:
            mark = item.get_closest_marker("sampled")
            group = None if mark is None else str(mark.kwargs.get("group", ""))
            takes = is_in_sample(item.nodeid, int(seed), group, servers=servers)
        if taken is not None and not servers:
            takes = takes and taken.has(item.nodeid.partition("::")[0])
        (kept if takes else left).append(item)
    return kept, left


def told() -> str:
    """What the end of a run says; empty = it takes all."""
    seed, taken = os.environ.get("PERDURE_SAMPLE"), share()
    words = []
    if seed:
        words.append(
            f"one in {SAMPLED_ONE_IN} of the tests with processes and of simulations: SAMPLE={seed}"
        )
    if taken is not None:
        words.append(f"share {taken.part + 1} of {taken.of} by the seed {taken.seed}")
    return "; ".join(words)
