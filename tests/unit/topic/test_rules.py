"""Rules on topics: how they are read, and what names become of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.topic.matching import covers, matches
from perdure.topic.rules import Permission, Rule, fill, parse_rule


@pytest.mark.parametrize(
    ("said", "rule"),
    [
        ("read a/#", Rule(Permission.READ, "a/#")),
        ("write  a b", Rule(Permission.WRITE, "a b")),
        ("deny\ta", Rule(Permission.DENY, "a")),
        ("read", Rule(Permission.READWRITE, "read")),
        ("readwrite a\u2003b", Rule(Permission.READWRITE, "a\u2003b")),
        ("a\u2003b", Rule(Permission.READWRITE, "a\u2003b")),
    ],
)
def test_a_rule_is_an_access_and_a_filter(said: str, rule: Rule) -> None:
    assert parse_rule(said, is_pattern=True) == rule
    assert rule.permission.reads == (rule.permission.value in ("read", "readwrite"))
    assert rule.permission.writes == (rule.permission.value in ("write", "readwrite"))


@pytest.mark.parametrize("said", ["", "fly a", "read $share/g/a", "read a/#/b", "write x%u"])
def test_what_is_none(said: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_rule(said, is_pattern=True)


def test_names_are_put_in_whole_levels_or_the_rule_does_not_hold() -> None:
    rule = parse_rule("read d/%c/%u", is_pattern=True)
    assert fill(rule, client_id="pump", username="ada") == "d/pump/ada"
    assert fill(rule, client_id=None, username="ada") is None
    assert fill(rule, client_id="pump", username=None) is None
    first = parse_rule("write %u/x", is_pattern=True)
    assert fill(first, client_id=None, username="$SYS") is None


@given(name=st.text("a$+#/\0\u00e4", max_size=4), deny=st.booleans())
def test_no_name_widens_what_was_written(name: str, deny: bool) -> None:
    rule = parse_rule(f"{'deny' if deny else 'read'} d/%u/x", is_pattern=True)
    filled = fill(rule, client_id=None, username=name)
    assert (filled is not None) or not deny, "nobody gets around a deny line by a name"
    if filled is not None:
        assert covers("d/+/x", filled)
        assert not matches(filled, "d/someone-else/x") or deny
