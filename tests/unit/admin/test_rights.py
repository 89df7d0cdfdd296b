"""Who may have which operation."""

from __future__ import annotations

import pytest

from perdure.admin.rights import Principal, Role, may, may_touch, what_is_missing

ROLES: tuple[Role, ...] = ("viewer", "operator", "admin")


@pytest.mark.parametrize("right", ROLES)
def test_a_role_may_what_those_below_it_may(right: Role) -> None:
    allowed = [role for role in ROLES if may(Principal("p", role), right, "x.y")]
    assert allowed == list(ROLES[ROLES.index(right) :])


@pytest.mark.parametrize(
    ("scopes", "allowed"),
    [
        ((), True),
        (("*",), True),
        (("sessions",), True),
        (("sessions.kick",), True),
        (("sessions.list",), False),
        (("session",), False),
        (("sessions.kick.x", ""), False),
    ],
)
def test_scopes_narrow(scopes: tuple[str, ...], allowed: bool) -> None:
    assert may(Principal("p", "admin", scopes), "operator", "sessions.kick") is allowed
    assert not may(Principal("p", "viewer", ("*",)), "operator", "sessions.kick")


@pytest.mark.parametrize(
    ("topics", "allowed"),
    [
        ([], False),
        (["a/b"], True),
        (["a/b", "a/c/d"], True),
        (["a/b", "b"], False),
        (["a/#"], True),
        (["#"], False),
        (["+/b"], False),
    ],
)
def test_topics_of_a_principal(topics: list[str], allowed: bool) -> None:
    assert may_touch(Principal("p", "admin", topic_filters=("a/#", "c")), topics) is allowed
    assert may_touch(Principal("p", "admin"), topics)


@pytest.mark.parametrize(
    ("principal", "said"),
    [
        (Principal("a", "viewer"), "this needs the role operator"),
        (
            Principal("a", "operator", ("stats", "bans")),
            "this needs the scope sessions or sessions.kick; there is stats, bans",
        ),
        (
            Principal("a", "admin", topic_filters=("a/#", "b")),
            "there is a right to topics of a/#, b only",
        ),
    ],
)
def test_who_is_refused_is_told_what_is_missing(principal: Principal, said: str) -> None:
    assert what_is_missing(principal, "operator", "sessions.kick") == said
