"""Identity and the authorizer that allows all."""

from __future__ import annotations

import pytest

from perdure.broker.auth.authorize import AllowAll, Identity, is_sys_topic


def test_identity_is_a_value() -> None:
    ada = Identity("c", "ada")
    same = Identity("c", "ada")
    same.access = object()
    assert ada == same
    assert hash(ada) == hash(same)
    assert ada != Identity("c", "ada", True)
    assert ada != Identity("c", None)
    assert ada != Identity("d", "ada")
    assert ada != "ada"
    assert repr(ada) == "Identity('c', 'ada', superuser=False)"


@pytest.mark.parametrize(
    ("topic", "is_sys"),
    [("$SYS", True), ("$SYS/", True), ("$SYS/broker/x", True), ("$SYSTEM/x", False), ("a", False)],
)
def test_nobody_publishes_to_sys(topic: str, is_sys: bool) -> None:
    assert is_sys_topic(topic) is is_sys
    assert AllowAll().publish(Identity("c", "root", True), topic) is not is_sys


def test_allow_all_allows_the_rest() -> None:
    allow = AllowAll()
    anyone = Identity("c")
    assert allow.allow_all
    assert allow.generation == 0
    assert allow.subscribe(anyone, "$SYS/#")
    assert allow.deliver(anyone, "$SYS/broker/version")
