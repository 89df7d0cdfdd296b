"""Identity and the authorizer that allows all."""

from __future__ import annotations

import pytest

from perdure.broker.auth.authorize import AllowAll, Identity, is_own_topic


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
    ("topic", "is_own"),
    [
        ("$SYS", True),
        ("$SYS/", True),
        ("$SYS/broker/x", True),
        ("$SYSTEM/x", False),
        ("$audit/bans/add", True),
        ("$auditor", False),
        ("a", False),
    ],
)
def test_nobody_publishes_to_the_brokers_own_topics(topic: str, is_own: bool) -> None:
    assert is_own_topic(topic) is is_own
    assert AllowAll().publish(Identity("c", "root", True), topic) is not is_own


def test_allow_all_allows_the_rest() -> None:
    allow = AllowAll()
    anyone = Identity("c")
    assert allow.allow_all
    assert allow.generation == 0
    assert allow.subscribe(anyone, "$SYS/#")
    assert allow.deliver(anyone, "$SYS/broker/version")


def test_the_audit_is_not_for_everybody() -> None:
    allow = AllowAll()
    for topic_filter in ("$audit", "$audit/#", "$audit/bans/+"):
        assert not allow.subscribe(Identity("c", "ada"), topic_filter)
        assert allow.subscribe(Identity("c", "root", True), topic_filter)
    assert not allow.deliver(Identity("c", "ada"), "$audit/bans/add")
    assert allow.deliver(Identity("c", "root", True), "$audit/bans/add")
