"""Key names, with client ids that try to look like something else."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.pipeline.tbmq.keys import (
    client_of,
    last_packet_id_key,
    messages_key,
    packet_id_of_member,
    parse_last_packet_id,
    parse_shared,
    scan_pattern,
)

IDS = st.text(min_size=0, max_size=20) | st.sampled_from(
    ["a}_messages", "{}", "}{", "a b/c", "x_messages_7", "ä", "c}_last_packet_id", "}_messages"]
)


@given(IDS, st.sampled_from(["", "tbmq:", "{p}", "a*b?"]))
def test_round_trip(client_id: str, prefix: str) -> None:
    assert client_of(messages_key(prefix, client_id), prefix) == client_id
    assert client_of(last_packet_id_key(prefix, client_id), prefix) == client_id


def test_keys_of_others() -> None:
    assert client_of(b"{c}_messages_7", "") is None
    assert client_of(b"{c}_messages", "p:") is None
    assert client_of(b"other", "") is None
    assert client_of(b"{\xff}_messages", "") is None
    assert client_of(b"{}_messages", "") == ""
    assert client_of(b"{_messages", "") is None


def test_patterns_take_the_prefix_as_it_is() -> None:
    assert scan_pattern("", messages=True) == b"{*}_messages"
    assert scan_pattern("a[b]*", messages=False) == rb"a\[b\]\*{*}_last_packet_id"
    assert fnmatch.fnmatchcase("{c}_messages", scan_pattern("", messages=True).decode())


@pytest.mark.parametrize(
    ("member", "packet_id"),
    [
        (b"{c}_messages_65535", 65_535),
        (b"{c}_messages_65536", 0),
        (b"{c_9}_messages_1", 1),
        (b"{c}_messages_", 0),
        (b"{c}_messages_1x", 0),
        (b"x", 0),
    ],
)
def test_members(member: bytes, packet_id: int) -> None:
    assert packet_id_of_member(member) == packet_id


def test_last_packet_ids() -> None:
    assert [parse_last_packet_id(each) for each in (b"7", b"0", b"", b"-1", None)] == [
        7,
        0,
        0,
        0,
        0,
    ]
    assert parse_last_packet_id(b"70000") == 0


def test_shared_queues() -> None:
    assert parse_shared("ss_group_a/+/#") == ("group", "a/+/#")
    assert parse_shared("client") is None
    assert parse_shared("ss_sensor") is None
    assert parse_shared("ss_group_a/#/b") is None
    assert parse_shared("ss__a") is None
    assert parse_shared("ss_my_group_a/b") == ("my", "group_a/b")
    assert parse_shared("ss_my_group_a/b", {("my_group", "a/b")}) == ("my_group", "a/b")
