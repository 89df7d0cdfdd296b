"""Topics, filters and times that no broker would take: refused before anything is sent."""

from __future__ import annotations

from typing import Final

import click

from perdure.broker.connection.replay_request import parse_time_us, split_replay_filter
from perdure.errors import MqttError
from perdure.limits import UTF8_STRING_BYTES_MAX
from perdure.topic.names import validate_topic_filter, validate_topic_name

_LEVELS_MAX: Final = UTF8_STRING_BYTES_MAX + 1
"""More levels than a topic can have: how many are allowed is the broker's decision."""


def check_topic(topic: str, option: str) -> None:
    """Check a topic name.

    Raises:
        click.UsageError: it is none; says why.
    """
    if "+" in topic or "#" in topic:
        raise click.UsageError(f"{option} {topic!r}: a topic to publish to has no wildcards")
    check_text(topic, option)
    try:
        validate_topic_name(topic, levels_max=_LEVELS_MAX)
    except MqttError as error:
        raise click.UsageError(f"{option} {topic!r}: {error.message}") from None


def check_filter(topic_filter: str, option: str) -> None:
    """Check a topic filter, shared (``$share/group/filter``) or of a replay, or a plain one.

    Raises:
        click.UsageError: it is none; says why.
    """
    check_text(topic_filter, option)
    try:
        _, plain = split_replay_filter(topic_filter)
        validate_topic_filter(plain, levels_max=_LEVELS_MAX)
    except MqttError as error:
        raise click.UsageError(f"{option} {topic_filter!r}: {error.message}") from None


def check_replay_time(text: str) -> None:
    """Check ``--replay-from``; empty = not given.

    Raises:
        click.UsageError: it is no time; says what is one.
    """
    if not text:
        return
    try:
        parse_time_us(text)
    except MqttError as error:
        raise click.UsageError(f"--replay-from: {error.message}") from None


def check_text(text: str, option: str) -> None:
    """Check what every string of MQTT has to be: UTF-8 of at most 65,535 bytes, without U+0000.

    Raises:
        click.UsageError: it is not; says why.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        # Bytes of the command line that are no UTF-8 come as surrogates.
        raise click.UsageError(f"{option}: not UTF-8") from None
    if "\0" in text:
        raise click.UsageError(f"{option}: must not contain U+0000")
    if size > UTF8_STRING_BYTES_MAX:
        raise click.UsageError(f"{option}: {size} bytes; at most {UTF8_STRING_BYTES_MAX}")
