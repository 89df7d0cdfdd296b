"""Filters under an id: their bytes, and what a change makes of a stored subscription."""

from __future__ import annotations

import pytest

from perdure.content.stored import (
    StoredFilter,
    changed,
    check_id,
    check_text,
    from_message,
    to_message,
)
from perdure.errors import ConfigError, StorageCorrupt
from perdure.model import BackfillProgress, Message, Subscription

OLD, NEW = '{"t":1}', '{"t":2}'
STORED = StoredFilter(NEW, 10, 5)


def test_it_is_a_retained_message() -> None:
    message = to_message("f", STORED)
    assert (message.topic, message.retain, message.qos) == ("$filters/f", True, 1)
    assert from_message(message) == ("f", STORED)
    with pytest.raises(StorageCorrupt, match="'f'"):
        from_message(Message("$filters/f", b"{}"))


def test_ids_and_texts() -> None:
    assert check_id("A-b_c.9") == "A-b_c.9"
    for name in ("", "a b", "a/b", "=x", "+", "x" * 65):
        with pytest.raises(ConfigError, match="no id"):
            check_id(name)
    assert check_text('{"t": 1}', 8) == OLD
    for text, why in (('{"t":  1}', "at most 8"), ("1", "JSON object")):
        with pytest.raises(ConfigError, match=why):
            check_text(text, 8)


def sub(since: int = 0, **options: object) -> Subscription:
    return Subscription("a", qos=1, since_offset=since, where=OLD, where_id="f", **options)  # type: ignore[arg-type]


def test_what_a_change_makes_of_a_subscription() -> None:
    ended, following = changed(sub(4), STORED)
    assert (ended.since_offset, ended.until_offset, ended.where) == (4, 10, OLD)
    assert (following.since_offset, following.until_offset, following.where) == (10, 0, NEW)
    assert changed(following, STORED) == ()
    assert changed(ended, STORED) == ()
    assert changed(sub(4), None) == ()
    for one in (sub(12), sub(4, group="g"), sub(4, backfill=BackfillProgress(False, "", 0, 0))):
        (only,) = changed(one, STORED)
        assert (only.since_offset, only.until_offset, only.where) == (one.since_offset, 0, NEW)
