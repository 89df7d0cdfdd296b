"""What a terminal is shown holds nothing that it would obey."""

from __future__ import annotations

import json

import pytest

from perdure.observe.printable import printable, printable_json

TEXTS = ("plain", "\x1b[31m", "a\nb\tc", "\x7f", "\x9b2J", "\u202eevil", "\U000e0001", "日本 é")


@pytest.mark.parametrize("text", [*TEXTS, "\ud800"])
def test_nothing_is_left_that_does_not_print(text: str) -> None:
    assert printable(text).isprintable()


def test_escapes() -> None:
    assert printable("a\x1b[31m\n\ud800é") == "a\\x1b[31m\\n\\ud800é"


@pytest.mark.parametrize("text", TEXTS)
def test_json_means_the_same(text: str) -> None:
    shown = printable_json(json.dumps({"a": text}, ensure_ascii=False))
    assert shown.isprintable()
    assert json.loads(shown) == {"a": text}
