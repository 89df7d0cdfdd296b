"""The ACL file: syntax, precedence, substitution, and decisions against a naive reading."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.broker.auth.acl import DECISIONS_MAX, AclAuthorizer
from perdure.broker.auth.acl_rules import Access, AclRules
from perdure.broker.auth.authorize import Authorizer, Identity
from perdure.errors import ConfigError
from perdure.topic.matching import matches

ADA = Identity("c1", "ada")
BOB = Identity("c2", "bob")
ANON = Identity("c3")
ROOT = Identity("c4", "root", True)


def acl(*lines: str) -> AclAuthorizer:
    return AclAuthorizer(AclRules.parse("\n".join(lines), name="acl"))


def test_sections_of_the_file() -> None:
    rules = acl(
        "# comment",
        "topic read public/#",
        "",
        "user ada",
        "  topic lab/+/state",
        "\ttopic write\tlab/log  ",
        "user bob",
        "topic read lab/#",
        "pattern read devices/%c/#",
        "user ada",
        "topic read extra",
    )
    assert rules.deliver(ANON, "public/a")
    assert not rules.publish(ANON, "public/a")
    assert not rules.deliver(ADA, "public/a"), "lines before any user are for anonymous clients"
    assert rules.publish(ADA, "lab/1/state")
    assert rules.deliver(ADA, "lab/1/state")
    assert rules.publish(ADA, "lab/log")
    assert not rules.deliver(ADA, "lab/log")
    assert rules.deliver(ADA, "extra")
    assert rules.deliver(BOB, "lab/log")
    assert not rules.publish(BOB, "lab/log")
    for identity in (ADA, BOB, ANON):
        assert rules.deliver(identity, f"devices/{identity.client_id}/t")
        assert not rules.deliver(identity, "devices/other/t")
    stranger = Identity("c9", "eve")
    assert not rules.deliver(stranger, "public/a")
    assert rules.deliver(stranger, "devices/c9")


def test_words_of_a_topic_line() -> None:
    rules = acl("topic read", "topic read a b", "topic a\u00a0b")
    assert rules.publish(ANON, "read")
    assert rules.deliver(ANON, "a b")
    assert not rules.publish(ANON, "a b")
    assert rules.publish(ANON, "a\u00a0b")


def test_user_names_may_hold_blanks() -> None:
    assert acl("user a b", "topic x").publish(Identity("c", "a b"), "x")


@pytest.mark.parametrize("order", [0, 1])
def test_deny_beats_all_whatever_the_order(order: int) -> None:
    lines = ["topic readwrite #", "topic deny secret/#", "pattern readwrite secret/%c"]
    rules = acl(*(lines if order else reversed(lines)))
    assert rules.publish(ANON, "open")
    for topic in ("secret", "secret/a", "secret/c3"):
        assert not rules.publish(ANON, topic)
        assert not rules.deliver(ANON, topic)


def test_denying_pattern() -> None:
    rules = acl("user ada", "topic readwrite #", "pattern deny inbox/%u")
    assert not rules.deliver(ADA, "inbox/ada")
    assert rules.deliver(ADA, "inbox/bob")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("topic", "nothing after 'topic'"),
        ("user", "nothing after 'user'"),
        ("topics read a", "unknown keyword 'topics'"),
        ("topic red a", "unknown access 'red'"),
        ("topic read a/#/b", "last level"),
        ("topic read a+", "whole level"),
        ("topic read $share/g/a", "without"),
        ("pattern read a/x%c", "whole levels"),
        ("pattern read %u%c", "whole levels"),
        ("topic read a\0b", r"U\+0000"),
    ],
)
def test_bad_line_is_named(line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        AclRules.parse(f"# ok\n\n{line}\n", name="dir/acl")
    assert error.value.message.startswith("dir/acl:3: ")
    assert error.value.hint


def test_load(tmp_path: Path) -> None:
    path = tmp_path / "acl"
    path.write_bytes(b"\xef\xbb\xbftopic read a\r\n")
    assert AclAuthorizer(AclRules.load(path)).deliver(ANON, "a")
    path.write_bytes(b"topic read a\n\xff\n")
    with pytest.raises(ConfigError, match=f"{path}:2: not UTF-8"):
        AclRules.load(path)
    with pytest.raises(ConfigError, match="cannot read"):
        AclRules.load(tmp_path / "none")


def test_file_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.broker.auth.acl_rules.ACL_FILE_BYTES_MAX", 12)
    path = tmp_path / "acl"
    path.write_text("topic read a")
    AclRules.load(path)
    path.write_text("topic read ab")
    with pytest.raises(ConfigError, match="larger than 12 bytes"):
        AclRules.load(path)


def test_without_a_file_all_is_allowed_but_publishing_to_sys() -> None:
    rules: Authorizer = AclAuthorizer(None)
    assert rules.allow_all
    assert rules.publish(ANON, "a")
    assert not rules.publish(ANON, "$SYS/a")
    assert rules.subscribe(ANON, "$SYS/#")
    assert rules.deliver(ANON, "$SYS/broker/version")


def test_sys_with_a_file() -> None:
    rules = acl("topic readwrite #", "user ada", "topic readwrite $SYS/#")
    assert not rules.allow_all
    assert not rules.deliver(ANON, "$SYS/broker/version"), "# does not match $ topics"
    assert not rules.subscribe(ANON, "$SYS/#")
    assert rules.deliver(ADA, "$SYS/broker/version")
    assert rules.subscribe(ADA, "$SYS/#")
    assert not rules.publish(ADA, "$SYS/broker/version")


def test_superuser_is_exempt_but_for_sys() -> None:
    rules = acl("topic deny #")
    assert rules.publish(ROOT, "a")
    assert rules.subscribe(ROOT, "#")
    assert rules.deliver(ROOT, "$SYS/a")
    assert not rules.publish(ROOT, "$SYS/a")


@pytest.mark.parametrize(
    ("topic_filter", "granted"),
    [
        ("lab/1", True),
        ("lab/#", True),
        ("#", True),
        ("+/1", True),
        ("other", False),
        ("lab/secret/#", False),
        ("lab/secret/a", False),
        ("lab/+/a", True),
        ("dead/#", False),
        ("log", False),
    ],
)
def test_subscription_is_granted_if_something_may_come_of_it(
    topic_filter: str, granted: bool
) -> None:
    rules = acl(
        "topic read lab/#",
        "topic deny lab/secret/#",
        "topic read dead/a",
        "topic deny dead/+",
        "topic write log",
    )
    assert rules.subscribe(ANON, topic_filter) is granted


@pytest.mark.parametrize("name", ["+", "#", "a/b", "/", "+/+", "a+", "a#", "", "a\0b"])
def test_names_do_not_inject_levels_or_wildcards(name: str) -> None:
    rules = acl("pattern readwrite d/%c/x", "pattern readwrite u/%u/#")
    identity = Identity(name, name)
    for topic in ("d/a/x", "d/a/b/x", f"d/{name}/x", "d//x", "u/a", "u/a/b", f"u/{name}", "u/"):
        assert not rules.publish(identity, topic)
        assert not rules.deliver(identity, topic)
    assert not rules.subscribe(identity, "#")


def test_name_does_not_reach_dollar_topics() -> None:
    rules = acl("pattern read %c/#", "pattern read x/%c")
    identity = Identity("$SYS")
    assert not rules.deliver(identity, "$SYS/broker/version")
    assert not rules.subscribe(identity, "$SYS/#")
    assert rules.deliver(identity, "x/$SYS")


@pytest.mark.parametrize("name", ["a/b", "+", "", "#"])
def test_odd_name_does_not_get_around_a_deny_line(name: str) -> None:
    rules = acl("topic readwrite #", "pattern deny box/%c")
    assert not rules.deliver(Identity(name), "box/a")
    assert rules.deliver(Identity("b"), "box/a")


def test_patterns_with_a_user_name_do_not_hold_for_anonymous_clients() -> None:
    rules = acl("pattern read u/%u", "topic read d/#", "pattern deny d/%u")
    assert not rules.deliver(ANON, "u/None")
    assert not rules.subscribe(ANON, "u/#")
    assert rules.deliver(ANON, "d/a")


@pytest.mark.trap(54)
def test_reload_voids_decisions_for_what_is_already_queued() -> None:
    """A message queued, retained or recorded under old rules is judged by those of now."""
    rules = acl("topic readwrite #")
    identity = Identity("c", None)
    assert rules.deliver(identity, "a")
    assert rules.publish(identity, "a")
    generation = rules.generation
    rules.reload(AclRules.parse("topic read b", name="acl"))
    assert rules.generation > generation
    assert not rules.deliver(identity, "a")
    assert not rules.publish(identity, "a")
    assert not rules.subscribe(identity, "a")
    assert rules.deliver(identity, "b")
    rules.reload(None)
    assert rules.allow_all
    assert rules.deliver(identity, "a")


@pytest.mark.trap(54)
def test_deliver_does_not_trust_a_granted_subscription() -> None:
    rules = acl("topic read a/#", "topic deny a/secret")
    assert rules.subscribe(ANON, "a/#")
    assert rules.deliver(ANON, "a/open")
    assert not rules.deliver(ANON, "a/secret")


def test_an_identity_under_two_authorizers() -> None:
    one, two = acl("topic read a"), acl("topic read b")
    identity = Identity("c")
    for _ in range(2):
        assert one.deliver(identity, "a")
        assert not two.deliver(identity, "a")


def test_remembered_decisions_are_bounded_and_stay_right() -> None:
    rules = acl("topic read t/#", "topic write u/#")
    identity = Identity("c")
    for _ in range(2):
        for number in range(DECISIONS_MAX + 5):
            assert rules.deliver(identity, f"t/{number}")
            assert not rules.publish(identity, f"t/{number}")
            assert rules.publish(identity, f"u/{number}")
    access = identity.access
    assert isinstance(access, Access)
    assert 0 < len(access.deliver) <= DECISIONS_MAX
    assert 0 < len(access.publish) <= DECISIONS_MAX


levels = st.sampled_from(["a", "b", "", "$SYS"])
topics = st.lists(levels, min_size=1, max_size=4).map("/".join).filter(bool)


@st.composite
def filters(draw: st.DrawFn) -> str:
    parts = draw(st.lists(st.one_of(levels, st.just("+")), max_size=3))
    if draw(st.booleans()) or not parts:
        parts.append("#")
    return "/".join(parts) or "+"


permissions = st.sampled_from(["read", "write", "readwrite", "deny"])
lines = st.lists(st.tuples(permissions, filters()), max_size=6)


def naive(listed: list[tuple[str, str]], topic: str, word: str) -> bool:
    hit = {permission for permission, f in listed if matches(f, topic)}
    return "deny" not in hit and bool(hit & {word, "readwrite"})


@given(lines, topics, st.booleans())
def test_decisions_are_those_of_a_naive_reading(
    listed: list[tuple[str, str]], topic: str, as_patterns: bool
) -> None:
    keyword = "pattern" if as_patterns else "topic"
    rules = acl(*(f"{keyword} {permission} {f}" for permission, f in listed))
    identity = Identity("c")
    for _ in range(2):
        assert rules.deliver(identity, topic) is naive(listed, topic, "read")
        sys = topic.startswith("$SYS/") or topic == "$SYS"
        assert rules.publish(identity, topic) is (not sys and naive(listed, topic, "write"))


@given(lines, filters(), topics)
def test_no_subscription_that_could_yield_is_refused(
    listed: list[tuple[str, str]], topic_filter: str, topic: str
) -> None:
    rules = acl(*(f"topic {permission} {f}" for permission, f in listed))
    if matches(topic_filter, topic) and rules.deliver(ANON, topic):
        assert rules.subscribe(ANON, topic_filter)


names = st.text(alphabet="ab/+#$", max_size=5)


@given(names, topics)
def test_pattern_allows_exactly_the_name_as_one_level(name: str, topic: str) -> None:
    rules = acl("pattern read a/%c/b", "pattern read %c")
    allowed = rules.deliver(Identity(name), topic)
    plain = name != "" and not set(name) & set("+#/")
    expected = plain and (
        topic.split("/") == ["a", name, "b"] or (topic == name and not name.startswith("$"))
    )
    assert allowed is expected
    assert rules.deliver(Identity(name), f"a/{name}/b") is plain


def test_memory_for_decisions_is_bounded_over_all_identities() -> None:
    """By bytes: topics may be long, and there may be many clients; those that have gone too."""
    rules = AclRules.parse("topic readwrite #", name="acl")
    authorizer = AclAuthorizer(rules, cache_bytes=100_000)
    identities = [Identity(f"c{number}") for number in range(50)]
    most = 0
    for number in range(2_000):
        identity = identities[number % 50]
        topic = f"{number}/" + "x" * 5_000
        assert authorizer.publish(identity, topic)
        assert authorizer.deliver(identity, topic)
        held = [access for i in identities if isinstance(access := i.access, Access)]
        most = max(most, sum(len(t) for a in held for t in (*a.publish, *a.deliver)))
    assert 0 < most <= 100_000
    assert authorizer.cache_bytes <= 100_000
    assert authorizer.publish(identities[0], "y" * 60_000)
    small = AclAuthorizer(rules, cache_bytes=0)
    assert small.publish(identities[0], "t")
    assert small.cache_bytes == 0


def test_a_reload_gives_the_memory_back() -> None:
    rules = AclRules.parse("topic readwrite #", name="acl")
    authorizer = AclAuthorizer(rules)
    identity = Identity("c")
    assert authorizer.publish(identity, "t")
    assert authorizer.cache_bytes
    authorizer.reload(None)
    assert authorizer.cache_bytes == 0


def test_the_audit_takes_a_rule_that_names_it() -> None:
    rules = acl("user ada", "topic read #", "user bob", "topic readwrite $audit/#")
    for authorizer, may in ((AclAuthorizer(None), False), (rules, False)):
        assert authorizer.subscribe(ADA, "$audit/#") is may
        assert authorizer.deliver(ADA, "$audit/bans/add") is may
    assert rules.subscribe(BOB, "$audit/#")
    assert rules.deliver(BOB, "$audit/bans/add")
    assert not rules.publish(BOB, "$audit/bans/add")
    assert AclAuthorizer(None).subscribe(ROOT, "$audit/#")
