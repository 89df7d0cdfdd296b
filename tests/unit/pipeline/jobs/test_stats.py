"""Structures that the log learned too late to join are counted with the one that covers them."""

from __future__ import annotations

from perdure.pipeline.jobs.stats import covering


def test_the_most_general_structure_covers() -> None:
    structures = ["rooms/0/t", "rooms/+/t", "rooms/+/+", "rooms/0", "a/b/c/d", "$SYS/0/t", "+/+/t"]
    assert covering(structures) == {
        "rooms/0/t": "+/+/t",
        "rooms/+/t": "+/+/t",
        "rooms/+/+": "rooms/+/+",
        "rooms/0": "rooms/0",
        "a/b/c/d": "a/b/c/d",
        # A wildcard in the first level does not match a topic that begins with $.
        "$SYS/0/t": "$SYS/0/t",
        "+/+/t": "+/+/t",
    }
    assert covering([]) == {}
