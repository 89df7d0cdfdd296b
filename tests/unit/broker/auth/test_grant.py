"""What a login grants: how it is read, and what it does beside the ACL file."""

from __future__ import annotations

import pytest

from perdure.broker.auth.acl import AclAuthorizer
from perdure.broker.auth.acl_rules import AclRules
from perdure.broker.auth.authorize import Identity
from perdure.broker.auth.grant import EVERYTHING, Grant, grant_of, parse_grant
from perdure.topic.rules import Permission, Rule


def test_both_forms() -> None:
    lines = ["read a/#", "write d/%c", "both", "deny s"]
    lists = {"sub": ["a/#"], "pub": ["d/%c"], "all": ["both"], "deny": ["s"]}
    assert parse_grant(lines) == parse_grant(lists)
    assert parse_grant(lines).rules[1] == Rule(Permission.WRITE, "d/%c")
    assert parse_grant(None) == parse_grant([]) == parse_grant({}) == Grant()
    assert parse_grant(None, superuser=True).superuser


@pytest.mark.parametrize(
    "said",
    [
        "read a",
        7,
        [7],
        [["read a"]],
        {"sub": "a"},
        {"sub": [None]},
        {"subscribe": ["a"]},
        {"pub": [""]},
        {"deny": [" "]},
        {"pub": ["a/#/b"]},
        ["fly a"],
        [""],
        ["read $share/g/a"],
        ["read x%c"],
    ],
)
def test_what_is_neither(said: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_grant(said)


def test_rules_are_bounded() -> None:
    assert len(grant_of(["a"] * 5, rules_max=5).rules) == 5
    with pytest.raises(ValueError, match="more than 4"):
        grant_of(["a"] * 5, rules_max=4)


def identity(*rules: str) -> Identity:
    return Identity("pump", "ada", grant=grant_of(rules))


def test_without_a_file_a_grant_is_all_that_there_is() -> None:
    authorizer = AclAuthorizer(None, grants=True)
    assert not authorizer.allow_all
    client = identity("write d/%c", "read a/#", "deny a/secret")
    assert authorizer.publish(client, "d/pump")
    assert not authorizer.publish(client, "d/other")
    assert not authorizer.publish(client, "a/x")
    assert authorizer.deliver(client, "a/x")
    assert not authorizer.deliver(client, "a/secret")
    assert authorizer.subscribe(client, "a/+")
    assert not authorizer.subscribe(client, "b")
    nothing = identity()
    assert not authorizer.publish(nothing, "x")
    assert not authorizer.subscribe(nothing, "#")


def test_a_login_that_says_nothing_of_rights_is_bound_by_the_file_alone() -> None:
    assert AclAuthorizer(None, grants=True).publish(Identity("c", "ada"), "x")
    ruled = AclAuthorizer(AclRules.parse("user ada\ntopic write x\n", name="acl"), grants=True)
    assert ruled.publish(Identity("c", "ada"), "x")
    assert not ruled.publish(Identity("c", "ada"), "y")


def test_file_and_grant_together_and_deny_beats_both() -> None:
    rules = AclRules.parse("user ada\ntopic write f\ntopic deny x\n", name="acl")
    authorizer = AclAuthorizer(rules, grants=True)
    client = identity("write g", "write x", "deny f")
    assert authorizer.publish(client, "g")
    assert not authorizer.publish(client, "x")
    assert not authorizer.publish(client, "f")


def test_no_grant_reaches_the_brokers_own_topics() -> None:
    authorizer = AclAuthorizer(None, grants=True)
    client = identity("readwrite #", "readwrite $SYS/#")
    assert not authorizer.publish(client, "$SYS/x")
    assert authorizer.deliver(client, "$SYS/x")


def test_names_in_a_grant_are_levels_and_nothing_else() -> None:
    authorizer = AclAuthorizer(None, grants=True)
    for name in ("a/b", "+", "#"):
        client = Identity(name, "ada", grant=grant_of(["readwrite d/%c"]))
        assert not authorizer.publish(client, "d/a/b")
        assert not authorizer.deliver(client, "d/x")


def test_another_grant_holds_from_then_on() -> None:
    authorizer = AclAuthorizer(None, grants=True)
    client = identity("write a")
    assert authorizer.publish(client, "a")
    client.grant, client.access = grant_of(["write b"]), None
    assert not authorizer.publish(client, "a")
    assert authorizer.publish(client, "b")


def test_everything() -> None:
    authorizer = AclAuthorizer(None, grants=True)
    assert authorizer.publish(Identity("c", "ada", grant=EVERYTHING), "any/thing")
