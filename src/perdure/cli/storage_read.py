"""``perdure storage read`` and ``export``: the messages of the log, for people and for files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import msgspec

from perdure.cli.data import storage_options
from perdure.cli.exporting import TOLD_EVERY, counting, lines_to
from perdure.cli.output import Column, Output, encode, output_options
from perdure.cli.range_options import since_option, topic_option, until_option
from perdure.cli.state_open import open_stored
from perdure.clock import SystemClock
from perdure.config.schema import StorageConfig
from perdure.config.units import format_time, parse_time
from perdure.errors import MqttError
from perdure.limits import OFFSET_MAX
from perdure.server.administration.message_rows import message_row
from perdure.topic.names import validate_topic_filter

if TYPE_CHECKING:
    from perdure.cli.state_open import State
    from perdure.model import Message

READ_PAGE: Final = 500
"""Messages of one read."""

READ_BYTES: Final = 8 * 1024 * 1024
"""Payload bytes of one read."""

PAYLOAD_SHOWN_MAX: Final = 200
"""Bytes of a payload in a table; JSON has all."""


class Wanted(NamedTuple):
    """Which messages.

    Attributes:
        filters: of their topics.
        after, until: offsets; those behind the first, up to the last.
    """

    filters: list[str]
    after: int
    until: int


@click.command()
@storage_options
@topic_option(otherwise="Everything but $-topics")
@since_option
@until_option
@click.option("--limit", "-n", type=click.IntRange(min=1), help="At most so many messages.")
@output_options
def read(
    storage: StorageConfig,
    filters: tuple[str, ...],
    since: str | None,
    until: str | None,
    limit: int | None,
    out: Output,
) -> None:
    """Read recorded messages in the order of the log; works beside a running broker."""
    wanted = _wanted(filters, since, until)
    with open_stored(storage) as (log, runs):
        _print_messages(out, runs.each(_messages(log, wanted, limit)))


@click.command()
@storage_options
@topic_option(otherwise="Everything but $-topics")
@since_option
@until_option
@click.option("--after", type=click.IntRange(0, OFFSET_MAX), default=0, metavar="OFFSET",
              help="Only what is behind it: the last_offset of an export before.")  # fmt: skip
@click.option("--to", "target", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write to a file, which appears once it is complete, compressed if its name "
              "ends in .gz; else to standard output.")  # fmt: skip
@click.option("--no-progress", is_flag=True, help="Show no progress on the terminal.")
@output_options
def export(
    storage: StorageConfig,
    filters: tuple[str, ...],
    since: str | None,
    until: str | None,
    after: int,
    target: Path | None,
    no_progress: bool,
    out: Output,
) -> None:
    """Write recorded messages as lines of JSON, with the fields of `storage read --json`.

    Takes what the log has when it begins, beside a running broker or not, in the order of the log.
    With --to it prints what it has written; `last_offset` is what the next one takes for --after.
    Tables of all fields, with types and by partition, are `perdure pipeline archive`; a copy that
    a broker starts from is `perdure backup`.
    """
    wanted = _wanted(filters, since, until, after=after)
    with open_stored(storage) as (log, runs):
        infos = log.generations()
        first = max(wanted.after, infos[0].since_offset if infos else 0)
        last = min(wanted.until, log.last_offset)
        text, reach = "{messages:,} messages", float(max(1, last - first))
        with (
            counting(text, target=target, wanted=not no_progress, total=reach, messages=0) as tell,
            lines_to(target) as file,
        ):
            count, through = 0, wanted.after
            for message in runs.each(_messages(log, wanted._replace(until=last), None)):
                file.write(f"{encode(message_row(message))}\n")
                count, through = count + 1, message.offset
                if not count % TOLD_EVERY:
                    tell(float(message.offset - first), messages=count)
        if target is not None:
            # What no filter takes is behind it too.
            through = max(through, last)
            out.record(
                {
                    "file": str(target),
                    "messages": count,
                    "bytes": target.stat().st_size,
                    "last_offset": through,
                    "last_at": format_time(through),
                }
            )


def _wanted(
    filters: tuple[str, ...], since: str | None, until: str | None, *, after: int = 0
) -> Wanted:
    now_us = SystemClock().now_us()
    after_offset = max(after, _moment(since, "--from", now_us) - 1) if since else after
    until_offset = _moment(until, "--until", now_us) if until else OFFSET_MAX
    if since and after_offset >= until_offset:
        raise click.BadParameter(f"--from {since} is behind --until {until}")
    for topic_filter in filters:
        try:
            validate_topic_filter(topic_filter, levels_max=65_536)
        except MqttError as error:
            raise click.BadParameter(f"{topic_filter!r}: {error.message}") from error
        if topic_filter.startswith("$share/"):
            raise click.BadParameter(f"{topic_filter!r}: a shared filter has no messages")
    return Wanted(list(filters) or ["#"], after_offset, until_offset)


def _print_messages(out: Output, messages: Iterator[Message]) -> None:
    columns = (
        Column("published_at", time=True),
        Column("topic"),
        Column("qos", right=True),
        Column("publisher"),
        Column("payload_shown"),
    )
    rows: Iterator[dict[str, Any]] = (msgspec.to_builtins(message_row(each)) for each in messages)
    if not out.is_json:
        rows = ({**row, "payload_shown": _shown(row)} for row in rows)
    out.rows(columns, rows)


def _moment(text: str, option: str, now_us: int) -> int:
    try:
        return parse_time(text, now_us)
    except ValueError as error:
        raise click.BadParameter(f"{option}: {error}") from error


async def _messages(log: State, wanted: Wanted, limit: int | None) -> AsyncIterator[Message]:
    left = limit
    after, until = wanted.after, min(wanted.until, log.last_offset)
    while after < until and left != 0:
        page = await log.read(
            wanted.filters,
            after_offset=after,
            until_offset=until,
            limit=READ_PAGE if left is None else min(READ_PAGE, left),
            bytes_max=READ_BYTES,
        )
        for message in page.messages:
            yield message
        if left is not None:
            left -= len(page.messages)
        after = page.through_offset


def _shown(row: dict[str, Any]) -> str:
    text: str | None = row["payload_text"]
    if text is None:
        text = f"base64:{row['payload']}"
    return text if len(text) <= PAYLOAD_SHOWN_MAX else f"{text[:PAYLOAD_SHOWN_MAX]}…"
