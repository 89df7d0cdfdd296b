"""MQTT 5.0, section 4.7: topic names, topic filters and which matches which."""

from __future__ import annotations

import pytest

from tests.wire.harness import Broker
from tests.wire.packets import V5, Kind, Reason

MATCHES = [
    # filter, topics that match, topics that do not; {} is the name of the case
    ("{}/a", ["{}/a"], ["{}/A", "{}/a/", "/{}/a", "{}/b", "{}", "{}/a/b", "{}/ab", "{}/ a"]),
    ("{}/+", ["{}/a", "{}/", "{}/$"], ["{}", "{}/a/b", "{}//"]),
    ("{}/#", ["{}", "{}/", "{}/a", "{}/a/b", "{}//", "{}//a"], ["x{}", "{}x", "/{}"]),
    ("{}/+/b", ["{}/a/b", "{}//b"], ["{}/b", "{}/a/a/b", "{}/a/b/", "{}/a/c"]),
    ("{}/+/+", ["{}/a/b", "{}//", "{}/a/"], ["{}/a", "{}/a/b/c"]),
    ("{}/+/#", ["{}/a", "{}/a/b", "{}/", "{}//"], ["{}"]),
    ("{}/a/#", ["{}/a", "{}/a/", "{}/a/b/c"], ["{}/ab", "{}/b", "{}"]),
    ("+/{}", ["a/{}", "/{}"], ["{}", "a/b/{}", "a/{}/"]),
    ("+/{}/#", ["a/{}", "/{}", "a/{}/b", "/{}/b/c"], ["{}", "{}/a"]),
    ("/{}", ["/{}"], ["{}", "//{}", "/{}/"]),
    ("/{}/#", ["/{}", "/{}/a"], ["{}", "{}/a", "//{}"]),
    ("+/+/{}", ["a/b/{}", "//{}"], ["a/{}", "{}"]),
    ("{}//", ["{}//"], ["{}/", "{}///", "{}/a/"]),
    ("{}//#", ["{}/", "{}//", "{}//a"], ["{}", "{}/a"]),
    ("{}/+/", ["{}/a/", "{}//"], ["{}/a", "{}/", "{}/a/b"]),
    ("{}/ü/+", ["{}/ü/a"], ["{}/u\u0308/a", "{}/Ü/a"]),
    ("{}/\ufeffa", ["{}/\ufeffa"], ["{}/a"]),
    ("{}/with space", ["{}/with space"], ["{}/withspace", "{}/with  space"]),
    ("{}/😀/#", ["{}/😀", "{}/😀/🎉"], ["{}/🎉"]),
    ("{}/$a", ["{}/$a"], ["{}/a"]),
    ("{}/$a/#", ["{}/$a", "{}/$a/b"], ["{}/a"]),
    ("{}/+/$b", ["{}/a/$b", "{}/$a/$b"], ["{}/a/b"]),
    ("$d/{}", ["$d/{}"], ["d/{}", "$D/{}"]),
    ("$d/{}/#", ["$d/{}", "$d/{}/a"], ["d/{}/a", "$e/{}/a"]),
    ("$d/+/{}", ["$d/a/{}"], ["$e/a/{}", "$d/{}"]),
]


def fill(text: str, name: str) -> str:
    """A topic or filter of this case."""
    return text.replace("{}", name)


@pytest.mark.spec("MQTT-4.7.1-1")
@pytest.mark.spec("MQTT-4.7.1-2")
@pytest.mark.spec("MQTT-4.7.3-4")
@pytest.mark.spec("MQTT-3.3.2-3")
@pytest.mark.spec("MQTT-1.5.4-3")
@pytest.mark.parametrize(("topic_filter", "matching", "others"), MATCHES, ids=lambda v: ascii(v))
def test_match(
    broker: Broker, name: str, topic_filter: str, matching: list[str], others: list[str]
) -> None:
    """Live: what matches comes, what does not match comes to a second subscriber only."""
    subscriber = broker.connect(f"{name}-subscriber")
    subscriber.subscribe((fill(topic_filter, name), 0))
    publisher = broker.connect(name)
    for topic in others:
        publisher.send(V5.publish(fill(topic, name), b"other"))
    for topic in matching:
        publisher.send(V5.publish(fill(topic, name), b"match"))
        subscriber.expect_publish(fill(topic, name), b"match")
    publisher.fence()
    subscriber.expect_nothing()


@pytest.mark.parametrize(("topic_filter", "matching", "others"), MATCHES, ids=lambda v: ascii(v))
@pytest.mark.trap(28)
def test_match_offline(
    broker: Broker, name: str, topic_filter: str, matching: list[str], others: list[str]
) -> None:
    """The same from the log: the durable path may not match by other rules."""
    subscriber = broker.connect(f"{name}-subscriber", expiry=60)
    subscriber.subscribe((fill(topic_filter, name), 1))
    subscriber.disconnect()
    publisher = broker.connect(name)
    for topic in (*others, *matching):
        publisher.publish(fill(topic, name), b"x", qos=1)
    again = broker.connect(f"{name}-subscriber", clean=False, session_present=True)
    for topic in matching:
        again.receive_publish(fill(topic, name), b"x", qos=1)
    again.expect_nothing()


@pytest.mark.parametrize(("topic_filter", "matching", "others"), MATCHES, ids=lambda v: ascii(v))
@pytest.mark.trap(28)
def test_match_retained(
    broker: Broker, name: str, topic_filter: str, matching: list[str], others: list[str]
) -> None:
    """The same for stored messages."""
    publisher = broker.connect(name)
    for topic in (*others, *matching):
        publisher.publish(fill(topic, name), b"x", retain=True)
    subscriber = broker.connect(f"{name}-subscriber")
    subscriber.subscribe((fill(topic_filter, name), 1))
    found = [subscriber.take_publish().topic for _ in matching]
    subscriber.expect_nothing()
    assert sorted(found) == sorted(fill(topic, name) for topic in matching)
    for topic in (*others, *matching):
        publisher.publish(fill(topic, name), b"", retain=True)


@pytest.mark.spec("MQTT-4.7.3-1")
@pytest.mark.parametrize("topic", ["/", "//", " ", "a", "\ufeffa", "x" * 65_535])
def test_unusual_topic_names(broker: Broker, topic: str) -> None:
    """Legal names: a sole `/`, spaces, the longest that there is."""
    peer = broker.connect("")
    peer.subscribe((topic, 1))
    peer.publish(topic, b"x", qos=1)
    peer.receive_publish(topic, b"x", qos=1)


def test_name_of_many_levels(broker: Broker, name: str) -> None:
    """100 levels, and a filter with a `+` at each second one."""
    peer = broker.connect(name)
    levels = [name, *(["a", "b"] * 50)]
    wildcard = [name, *(["a", "+"] * 50)]
    peer.subscribe(("/".join(wildcard), 0))
    peer.publish("/".join(levels), b"deep")
    peer.receive_publish("/".join(levels), b"deep")


BAD_FILTERS = [
    "{}#",
    "{}/a#",
    "{}/#/a",
    "#/{}",
    "#/#",
    "##",
    "{}+",
    "+{}",
    "{}/a+/b",
    "{}/+a",
    "{}/++",
    "{}/#+",
    "",
]


@pytest.mark.spec("MQTT-4.7.1-1")
@pytest.mark.spec("MQTT-4.7.1-2")
@pytest.mark.spec("MQTT-4.7.3-1")
@pytest.mark.parametrize("topic_filter", BAD_FILTERS, ids=ascii)
def test_filter_that_is_none(broker: Broker, name: str, topic_filter: str) -> None:
    """SUBACK 0x8F (3.9.3), or DISCONNECT with 0x81, 0x82 or 0x8F: never a grant."""
    peer = broker.connect(name)
    peer.send(V5.subscribe((fill(topic_filter, name), 0)))
    found = peer.receive()
    if found is not None and found.kind is Kind.SUBACK:
        assert found.reasons == (Reason.FILTER_INVALID,)
        peer.expect_nothing()
    elif found is not None:
        assert found.kind is Kind.DISCONNECT
        codes = (Reason.MALFORMED, Reason.PROTOCOL_ERROR, Reason.FILTER_INVALID)
        assert found.reason in codes
        peer.expect_closed()


@pytest.mark.parametrize("topic_filter", BAD_FILTERS, ids=ascii)
def test_unsubscribe_from_what_is_no_filter(broker: Broker, name: str, topic_filter: str) -> None:
    """UNSUBACK 0x8F or 0x11, or DISCONNECT; the broker goes on."""
    peer = broker.connect(name)
    peer.send(V5.unsubscribe(fill(topic_filter, name)))
    found = peer.receive()
    if found is not None and found.kind is Kind.UNSUBACK:
        assert found.reasons[0] in (Reason.FILTER_INVALID, Reason.NO_SUBSCRIPTION)
    elif found is not None:
        assert found.kind is Kind.DISCONNECT
    broker.connect(f"{name}-2").expect_nothing()


def test_filter_of_a_sole_wildcard(broker: Broker, name: str) -> None:
    """`+` matches one level, the empty one included; `#` matches all."""
    one = broker.connect(f"{name}-one")
    one.subscribe(("+", 0))
    every = broker.connect(f"{name}-every")
    every.subscribe(("#", 0))
    publisher = broker.connect(name)
    publisher.publish(f"{name}/two", b"x")
    publisher.publish(f"{name}", b"x")
    for peer, topics in ((one, [name]), (every, [f"{name}/two", name])):
        found = [m.topic for m in peer.drain() if m.topic.startswith(name)]
        assert found == topics


def test_topic_that_differs_in_the_last_byte(broker: Broker, name: str) -> None:
    """Long topics with one common prefix keep apart."""
    prefix = f"{name}/" + "x" * 500
    subscriber = broker.connect(f"{name}-subscriber")
    subscriber.subscribe((prefix + "a", 1))
    publisher = broker.connect(name)
    publisher.publish(prefix + "b", b"other", qos=1)
    publisher.publish(prefix + "a", b"mine", qos=1)
    subscriber.receive_publish(prefix + "a", b"mine", qos=1)


@pytest.mark.trap(27)
def test_thousand_topics_in_order(broker: Broker, name: str) -> None:
    """A level that is learned to vary in the middle must not disturb the order of a topic.

    Messages to one topic before and after the level became a wildcard in the log come in
    order, and none is missing, from the log as well as live.
    """
    subscriber = broker.connect(f"{name}-subscriber", expiry=60)
    subscriber.subscribe((f"{name}/+/v", 1))
    subscriber.disconnect()
    publisher = broker.connect(name)
    count = 150
    for round_number in range(3):
        for index in range(count):
            publisher.publish(f"{name}/{index}/v", b"%d" % round_number, qos=1)
    again = broker.connect(f"{name}-subscriber", clean=False, session_present=True)
    rounds: dict[str, list[int]] = {}
    for _ in range(3 * count):
        found = again.take_publish()
        rounds.setdefault(found.topic, []).append(int(found.payload))
    assert len(rounds) == count
    assert all(numbers == [0, 1, 2] for numbers in rounds.values())
