"""Topic aliases: what is assigned, what is resolved, what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import MqttError
from perdure.mqtt.aliases import InboundAliases, OutboundAliases
from perdure.mqtt.packets import Publish


def test_without_an_alias() -> None:
    assert InboundAliases(0).resolve(Publish("a", b"")) == "a"


@pytest.mark.spec("MQTT-3.3.2-12")
def test_an_alias_is_assigned_used_and_assigned_again() -> None:
    aliases = InboundAliases(2)
    assert aliases.resolve(Publish("a", b"", topic_alias=1)) == "a"
    assert aliases.resolve(Publish("b", b"", topic_alias=2)) == "b"
    assert aliases.resolve(Publish("", b"", topic_alias=1)) == "a"
    assert aliases.resolve(Publish("c", b"", topic_alias=1)) == "c"
    assert aliases.resolve(Publish("", b"", topic_alias=1)) == "c"
    assert aliases.resolve(Publish("", b"", topic_alias=2)) == "b"


@pytest.mark.spec("MQTT-3.3.2-9")
@pytest.mark.parametrize(("maximum", "alias"), [(0, 1), (10, 11), (10, 65535)])
def test_above_the_maximum(maximum: int, alias: int) -> None:
    for topic in ("a", ""):
        with pytest.raises(MqttError) as caught:
            InboundAliases(maximum).resolve(Publish(topic, b"", topic_alias=alias))
        assert caught.value.reason_code == 0x94


def test_never_assigned() -> None:
    with pytest.raises(MqttError) as caught:
        InboundAliases(5).resolve(Publish("", b"", topic_alias=5))
    assert caught.value.reason_code == 0x82


def test_none_allowed() -> None:
    aliases = OutboundAliases(0)
    assert [aliases.assign("a"), aliases.assign("a")] == [(0, False), (0, False)]


def test_the_least_recently_used_gives_way() -> None:
    aliases = OutboundAliases(2)
    assert aliases.assign("a") == (1, False)
    assert aliases.assign("b") == (2, False)
    assert aliases.assign("a") == (1, True)
    assert aliases.assign("c") == (2, False)
    assert aliases.assign("a") == (1, True)
    assert aliases.assign("b") == (2, False)


@given(st.integers(0, 4), st.lists(st.sampled_from("abcdef")))
def test_what_one_side_assigns_the_other_resolves(maximum: int, topics: list[str]) -> None:
    outbound, inbound = OutboundAliases(maximum), InboundAliases(maximum)
    for topic in topics:
        alias, omit = outbound.assign(topic)
        assert 0 <= alias <= maximum
        sent = Publish("" if omit else topic, b"", topic_alias=alias)
        assert inbound.resolve(sent) == topic
