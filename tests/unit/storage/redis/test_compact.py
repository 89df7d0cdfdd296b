"""Keys of the layout compact, and what its replies say."""

from __future__ import annotations

import pytest
from hiredis import ReplyError
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import Fenced, StorageCorrupt
from perdure.storage.redis import compact
from perdure.storage.redis.commands import slot_of
from perdure.storage.redis.compact import CompactLayout, is_whole, page_of, stats_of

LAYOUT = CompactLayout("p:")
names = st.text(alphabet=st.sampled_from("{}%a/ 7B\x00ä"), max_size=8)


@given(names)
def test_a_key_says_whose_it_is(client_id: str) -> None:
    key = LAYOUT.key(client_id)
    assert LAYOUT.client_id(key) == client_id


@given(names, names)
def test_two_clients_have_two_keys(one: str, other: str) -> None:
    assert (LAYOUT.key(one) == LAYOUT.key(other)) == (one == other)


@given(names)
def test_a_key_has_a_tag_of_its_own(client_id: str) -> None:
    key = LAYOUT.key(client_id)
    tag = key[len(b"p:q:{") : -1]
    assert tag
    assert b"{" not in tag
    assert b"}" not in tag
    assert slot_of(key) == slot_of(b"{" + tag + b"}")


@pytest.mark.parametrize("key", [b"p:q:x", b"q:{x}", b"p:q:{x}_messages", b"p:q:{\xff}"])
def test_other_keys_are_nobodys(key: bytes) -> None:
    assert LAYOUT.client_id(key) is None


def test_a_prefix_is_taken_as_it_is() -> None:
    assert CompactLayout("[a]*?\\").pattern == b"\\[a\\]\\*\\?\\\\q:{*}"
    assert CompactLayout("").key("c") == b"q:{c}"


def test_a_refused_read_is_an_error() -> None:
    with pytest.raises(Fenced):
        page_of(ReplyError("FENCED x"), after_serial=-1, limit=1, bytes_max=1, now_us=0)
    with pytest.raises(Fenced):
        stats_of("c", ReplyError("FENCED x"))


def test_a_glance_at_a_table_is_not_whole() -> None:
    assert is_whole([b"0", []])
    assert not is_whole([b"17", [b"m", b""]])
    with pytest.raises(StorageCorrupt):
        is_whole(ReplyError("WRONGTYPE x"))


def test_a_layout_forgets_keys_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact, "_KEYS_MAX", 2)
    layout = CompactLayout("")
    assert [layout.key(name) for name in "abcab"] == [
        b"q:{%b}" % name for name in (b"a", b"b", b"c", b"a", b"b")
    ]
    assert len(layout._keys) <= 2


def test_numbers_of_a_wrong_size_are_corrupt() -> None:
    with pytest.raises(StorageCorrupt):
        stats_of("c", [b"x" * 5, 1, 1])
    assert stats_of("c", None) is None
