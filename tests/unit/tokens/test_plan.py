"""How many partitions there are, where a token is, and what it all takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.tokens import LAYOUTS
from perdure.tokens.redis.plan import (
    BITS_MAX,
    Plan,
    bits_for,
    estimate,
    field_of,
    id_of,
    is_crowded,
    parse_plan,
    partition_of,
)

IDS = st.binary(min_size=20, max_size=20)


@given(IDS, st.integers(0, BITS_MAX))
def test_partition_and_field_tell_the_identifier(token_id: bytes, bits: int) -> None:
    partition = partition_of(token_id, bits)
    assert 0 <= partition < 1 << bits
    assert id_of(field_of(token_id, bits), bits, partition) == token_id


@given(IDS, st.integers(0, BITS_MAX - 1))
def test_a_partition_is_split_into_the_two_that_follow_from_it(token_id: bytes, bits: int) -> None:
    """As the script does it: by a bit of the first byte of the field, which goes with its last."""
    field = field_of(token_id, bits)
    half = field[0] >> (7 - bits % 8) & 1
    assert partition_of(token_id, bits + 1) == 2 * partition_of(token_id, bits) + half
    assert field_of(token_id, bits + 1) == (field[1:] if bits % 8 == 7 else field)


@given(st.integers(0, 10**12), st.integers(1, 1024))
def test_partitions_have_room(count: int, entries_max: int) -> None:
    bits = bits_for(count, entries_max)
    if bits < BITS_MAX:
        assert not is_crowded(count / 2**bits, entries_max)
    if 0 < bits < BITS_MAX:
        assert is_crowded(count / 2 ** (bits - 1), entries_max)  # and no more than they need


@pytest.mark.parametrize("plan", [Plan(0), Plan(14), Plan(14, is_splitting=True), Plan(BITS_MAX)])
def test_a_plan_is_written_and_read(plan: Plan) -> None:
    assert parse_plan(plan.text()) == plan
    assert parse_plan(None) is None


def test_what_layouts_take_is_what_was_measured() -> None:
    """A million tokens on Redis 7.0, whose listpacks have 128 entries (2026-11-23), within 5 %."""
    measured = {
        "json": 224.7,
        "packed": 176.8,
        "hash": 176.9,
        "partitioned:256": 229.6,
        "partitioned:65536": 81.6,
        "planned": 38.6,
    }
    assert list(measured) == list(LAYOUTS)
    for layout, found in measured.items():
        said = estimate(layout, 1_000_000, hash_entries=128).bytes_each
        assert said == pytest.approx(found, rel=0.05), layout
