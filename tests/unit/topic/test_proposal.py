"""Proposals that cannot be seeded are refused with what is wrong."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import ConfigError
from perdure.topic.proposal import (
    NODES_MAX,
    Proposal,
    ProposedPattern,
    Structure,
    check_structure,
    parse_proposal,
)
from perdure.topic.structure import StructureTrie


def proposal(*patterns: str, thresholds: tuple[int, ...] = (10,), version: int = 1) -> bytes:
    structures = tuple(ProposedPattern(pattern, 1, 0) for pattern in patterns)
    return msgspec.json.encode(Proposal(version, "db", 5, 9, thresholds, structures, {}))


def test_only_patterns_that_vary_are_seeded() -> None:
    found = parse_proposal(proposal("a/+", "b", "$SYS/+/x", "+b/c"))
    assert found.structure == Structure((10,), ("a/+", "$SYS/+/x"))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "this is no proposal"),
        (b'{"version": 1}', "this is no proposal"),
        (proposal(version=2), "has version 2"),
        (proposal(thresholds=()), "thresholds"),
        (proposal(thresholds=(-1,)), "thresholds"),
        (proposal(thresholds=(100_001,)), "thresholds"),
        (proposal(thresholds=(1,) * 65), "thresholds"),
        (proposal("a/+/#"), "plain levels only"),
        (proposal("a/b+/+"), "'a/b\\+/\\+'"),
        (proposal("$share/g/+"), "plain levels only"),
        (proposal("/".join("+" * 1001)), "pattern"),
        (proposal(*(f"{n}/+" for n in range(NODES_MAX // 2 + 1))), "more than 8192 levels"),
    ],
)
def test_what_cannot_be_used_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_proposal(data)


def test_the_largest_structure_leaves_room_to_learn() -> None:
    structure = Structure((10,), tuple(f"{n}/+" for n in range(NODES_MAX // 2)))
    check_structure(structure)
    trie = StructureTrie(thresholds=structure.thresholds, nodes_max=2 * NODES_MAX)
    trie.seed(structure.patterns)
    assert trie.node_count == NODES_MAX
    assert trie.pattern(trie.resolve("other").stream) == "+"
    assert trie.pattern(trie.resolve("7/x/y").stream) == "7/+/y"


@given(st.binary(max_size=40))
def test_any_bytes_are_a_proposal_or_an_error(data: bytes) -> None:
    with pytest.raises(ConfigError):
        parse_proposal(data)
