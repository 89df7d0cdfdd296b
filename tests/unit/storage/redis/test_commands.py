"""Slots and hash tags, code by its hash, what error replies mean."""

from __future__ import annotations

import pytest
from hiredis import ReplyError

from perdure.errors import (
    Fenced,
    PerdureError,
    StorageCorrupt,
    StorageError,
    StorageFull,
    StorageUnavailable,
    UsageError,
)
from perdure.storage.redis.commands import Library, Script, check, slot_of, translate


@pytest.mark.parametrize(
    ("key", "slot"),
    [
        # Published with the specification of Redis Cluster, and asked of a server.
        (b"123456789", 12_739),
        (b"", 0),
        (b"foo", 12_182),
        (b"{foo}bar", 12_182),
        (b"x{foo}{bar}", 12_182),
    ],
)
def test_slots_are_those_of_the_cluster(key: bytes, slot: int) -> None:
    assert slot_of(key) == slot


@pytest.mark.parametrize(
    ("key", "same_as"),
    [
        (b"{user1000}.following", b"user1000"),
        (b"foo{{bar}}zap", b"{bar"),
        (b"foo{bar}{zap}", b"bar"),
    ],
)
def test_the_tag_is_between_the_first_braces(key: bytes, same_as: bytes) -> None:
    assert slot_of(key) == slot_of(same_as)


def test_an_empty_tag_is_none() -> None:
    assert slot_of(b"foo{}{bar}") != slot_of(b"{bar}")
    assert slot_of(b"{}a") != slot_of(b"{}b")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("FENCED the queue belongs to epoch 4, not 3", Fenced),
        ("SERIAL 3 does not follow 4", UsageError),
        ("FORMAT another release", StorageCorrupt),
        ("OOM command not allowed", StorageFull),
        ("WRONGTYPE Operation against a key", StorageCorrupt),
        ("LOADING Redis is loading", StorageUnavailable),
        ("MISCONF Redis is configured to save", StorageUnavailable),
        ("NOAUTH Authentication required.", StorageUnavailable),
        ("READONLY You can't write against a read only replica.", StorageUnavailable),
        ("ERR unknown command", StorageError),
        ("NOPERM no permissions", StorageError),
    ],
)
def test_error_replies_become_errors_of_ours(text: str, kind: type[PerdureError]) -> None:
    assert type(translate(ReplyError(text))) is kind
    with pytest.raises(kind):
        check(ReplyError(text))


def test_what_is_no_error_passes() -> None:
    assert check(b"x") == b"x"
    assert check(None) is None


def test_a_library_is_known_by_its_text() -> None:
    one, other = Library("q", "f_{suffix}"), Library("q", "g_{suffix}")
    assert one.name != other.name
    assert one.code == f"#!lua name={one.name}\nf_{one.suffix}"
    assert one.function("f") == f"f_{one.suffix}".encode()


def test_a_script_is_known_by_its_hash() -> None:
    assert Script("return 1").sha == b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db"
