"""What no broker would take."""

from __future__ import annotations

import click
import pytest

from perdure.cli.mqtt_syntax import check_filter, check_replay_time, check_text, check_topic


@pytest.mark.parametrize(
    "topic_filter", ["a", "#", "+/a/#", "$share/g/a/+", "$replay/0/$share/g/#", "/", "$SYS/#"]
)
def test_filters(topic_filter: str) -> None:
    check_filter(topic_filter, "-t")


@pytest.mark.parametrize("topic_filter", ["", "a#", "#/a", "a+/b", "$share/g", "$replay/x/a", "\0"])
def test_no_filters(topic_filter: str) -> None:
    with pytest.raises(click.UsageError, match="-t"):
        check_filter(topic_filter, "-t")


@pytest.mark.parametrize("topic", ["a", "/", "$SYS/a", "a b", "x" * 65_535])
def test_topics(topic: str) -> None:
    check_topic(topic, "-t")


@pytest.mark.parametrize("topic", ["", "a/+", "#", "a\0", "x" * 65_536, "\udcff"])
def test_no_topics(topic: str) -> None:
    with pytest.raises(click.UsageError, match="-t"):
        check_topic(topic, "-t")


def test_times_and_texts() -> None:
    check_replay_time("")
    check_replay_time("2026-01-31T00:00:00Z")
    check_text("me", "-i")
    with pytest.raises(click.UsageError, match="--replay-from"):
        check_replay_time("now")
