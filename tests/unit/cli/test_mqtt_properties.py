"""``-D``: words to properties."""

from __future__ import annotations

import click
import pytest

from perdure.cli.mqtt_properties import PacketProperties, parse_properties, split_arguments
from perdure.mqtt.packets import Properties

VALUED = frozenset({"-m", "--message"})


def test_properties_are_taken_out_of_the_arguments() -> None:
    args = ["-t", "a", "-D", "publish", "content-type", "x", "-r", "--property", "connect"]
    args += ["user-property", "key", "value", "-q", "1"]
    assert split_arguments(args, VALUED) == (
        ["-t", "a", "-r", "-q", "1"],
        [["publish", "content-type", "x"], ["connect", "user-property", "key", "value"]],
    )


def test_a_value_may_look_like_the_option() -> None:
    assert split_arguments(["-m", "-D", "-n"], VALUED) == (["-m", "-D", "-n"], [])
    assert split_arguments(["-m"], VALUED) == (["-m"], [])


@pytest.mark.parametrize(
    "args",
    [["-D"], ["-D", "publish", "content-type"], ["-D", "publish", "user-property", "only-key"]],
)
def test_incomplete(args: list[str]) -> None:
    with pytest.raises(click.UsageError):
        split_arguments(args, VALUED)


def test_every_kind_of_value() -> None:
    words = [
        ["connect", "receive-maximum", "65535"],
        ["publish", "payload-format-indicator", "1"],
        ["publish", "correlation-data", "ü"],
        ["publish", "user-property", "a", "1"],
        ["publish", "user-property", "a", "2"],
        ["will", "will-delay-interval", "4294967295"],
        ["subscribe", "subscription-identifier", "268435455"],
        ["disconnect", "reason-string", "bye"],
    ]
    found = parse_properties(words)
    assert found.connect == Properties(receive_maximum=65535)
    assert found.publish == Properties(
        payload_format_indicator=1,
        correlation_data="ü".encode(),
        user_properties=(("a", "1"), ("a", "2")),
    )
    assert found.will == Properties(will_delay_interval=4294967295)
    assert found.subscribe == Properties(subscription_identifiers=(268435455,))
    assert found.disconnect == Properties(reason_string="bye")
    assert found.unsubscribe == Properties()
    assert parse_properties([]) == PacketProperties()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["puback", "reason-string", "x"], "no packet"),
        (["publish", "receive-maximum", "1"], "no property"),
        (["connect", "receive-maximum", "0"], "from 1 to 65535"),
        (["connect", "receive-maximum", "65536"], "from 1 to 65535"),
        (["subscribe", "subscription-identifier", "0"], "from 1"),
        (["publish", "payload-format-indicator", "2"], "from 0 to 1"),
        (["publish", "message-expiry-interval", "-1"], "number"),
        (["publish", "message-expiry-interval", "²"], "number"),
    ],
)
def test_bad_values(words: list[str], reason: str) -> None:
    with pytest.raises(click.UsageError, match=reason):
        parse_properties([words])
