"""``perdure pipeline replay``: the archive and the log behind it, published again."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from perdure.cli.archive_place import archive_lake, missing_option, to_option
from perdure.cli.data import broker_options
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.mqtt_options import ClientOptions, MqttCommand, publisher_options
from perdure.cli.mqtt_session import Interrupted, ends_on_signals
from perdure.cli.mqtt_syntax import check_topic
from perdure.cli.output import Output, output_options
from perdure.cli.pipeline_options import log_of, opened_log, pipeline_installed, read_options
from perdure.cli.range_options import since_option, topic_option, until_option
from perdure.cli.replay_publisher import Publisher
from perdure.config.schema import Config
from perdure.errors import ConfigError, StorageLocked, StorageUnavailable
from perdure.files import try_lock
from perdure.mqtt.packets import V5
from perdure.server import process
from perdure.storage.cursors import replace_file

if TYPE_CHECKING:
    from perdure.pipeline.jobs.replay import Replay

_PROGRESS_BYTES_MAX: Final = 1 << 16


class Progress(msgspec.Struct, frozen=True):
    """How far a replay has come: the content of ``--progress``.

    Attributes:
        database: identity of the log.
        offset: the broker has everything up to here.
        filters: what is replayed; empty = all.
        prefix: before the topics.
    """

    database: str
    offset: int
    filters: tuple[str, ...]
    prefix: str


@click.command(cls=MqttCommand, context_settings={"help_option_names": ["--help"]})
@broker_options
@publisher_options
@topic_option()
@since_option
@until_option
@to_option
@click.option("--prefix", default="replay/", show_default=True, metavar="TEXT",
              help="Before the topics, so that nobody takes the past for the present.")  # fmt: skip
@click.option("-q", "--qos", "qos_max", type=click.IntRange(0, 2), default=1, show_default=True,
              help="Highest QoS.")  # fmt: skip
@click.option("--rate", type=click.IntRange(0, 10_000_000), default=0, metavar="COUNT",
              help="Most messages a second; 0 = as fast as the broker takes them.")  # fmt: skip
@click.option("--progress", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Go on behind what this file says was published, and keep it.")  # fmt: skip
@missing_option
@output_options
def replay(
    config: Config,
    options: ClientOptions,
    filters: tuple[str, ...],
    since: str | None,
    until: str | None,
    to: str,
    prefix: str,
    qos_max: int,
    rate: int,
    progress: Path | None,
    missing: str,
    out: Output,
) -> int:
    """Publish recorded messages again, also those that only the archive still has.

    Reads the archive up to where the log begins, and the log from there: no gap and no repeat
    between them, with retention and archive running. Messages come in the order in which they were
    published, up to those that are there when it begins, on their topics behind --prefix. User
    properties tell offset (perdure-offset), time and publisher. With --progress a replay that was
    ended goes on; a message that the broker may have had already then comes again, with its offset.

    \b
    Examples:
      perdure pipeline replay --to archive --topic 'devices/7/#' --from 2026-01-31T00:00:00Z
      perdure sub -t 'replay/devices/7/#' -q 1 -c -i late -v
      perdure pipeline replay --to archive --progress replay.json --rate 5000 -h broker -i replay
    """
    if options.version != V5:
        raise click.UsageError("a replay needs MQTT 5.0: -V 5")
    if options.url is not None:
        raise click.UsageError("name the broker with -h and -p")
    if prefix:
        check_topic(prefix + "x", "--prefix")
    has_archive = bool(to or config.pipeline.tables.place)
    log = log_of(config, config.pipeline.log.url)
    read = read_options(log, filters, **{"from": since, "until": until})
    if has_archive:
        lake = archive_lake(config.pipeline.tables, to)
        read = msgspec.structs.replace(
            read, catalog=lake.place, lake=lake, skip_missing=missing == "skip"
        )
    with opened_log(read):
        pass  # It can be read.
    with pipeline_installed():
        from perdure.pipeline.jobs.replay import Replay
    with contextlib.nullcontext() if progress is None else _locked(progress):
        known = None if progress is None else _load(progress, filters, prefix)
        job = Replay(
            read,
            database=known.database if known else "",
            after_offset=known.offset if known else 0,
            leaves_out=prefix,
        )
        publisher = Publisher(options, out, prefix=prefix, qos_max=qos_max, rate=rate)

        def keep(offset: int) -> None:
            if progress is not None:
                _save(progress, Progress(job.database, offset, tuple(sorted(filters)), prefix))

        return process.run(_run(job, publisher, keep, out))


async def _run(job: Replay, publisher: Publisher, keep: Any, out: Output) -> int:
    # Arrow is there: the job has been made.
    from perdure.pipeline.message_rows import messages

    await publisher.open()
    through = job.begins_after
    try:
        async with ends_on_signals():
            rounds = job.rounds()
            # A round may take seconds to read: the connection must be kept alive meanwhile.
            while (found := await asyncio.to_thread(_next, rounds)) is not None:
                for batch in found.rows.to_batches(max_chunksize=publisher.batch_messages):
                    given = messages(batch)
                    await publisher.publish(given)
                    through = given[-1].offset
                    keep(through)
                through = found.through_offset
                keep(through)
    except Interrupted as interrupted:
        return 128 + interrupted.number
    finally:
        await publisher.close()
        out.record({
            "messages": publisher.sent,
            "bytes": publisher.bytes,
            "no_subscribers": publisher.unheard,
            "through_offset": through,
        })  # fmt: skip
    return ExitCode.OK


def _next(rounds: Iterator[Any]) -> Any:
    return next(rounds, None)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep a progress file for this process. The lock is on a file beside it that stays, because
    the progress itself is another file after each step; it ends with the process, however that
    ends.

    Raises:
        StorageLocked: another replay has it.
        StorageUnavailable: the directory takes no files.
    """
    path = path.resolve()
    if not path.parent.is_dir():
        raise CommandFailed(f"{path.parent} is no directory", ExitCode.USAGE)
    beside = path.with_name(f".{path.name}.lock")
    try:
        file = try_lock(beside)
    except OSError as error:
        raise StorageUnavailable(f"cannot write {beside}: {error.strerror}") from error
    if file is None:
        raise StorageLocked(
            f"another replay goes on with {path}",
            hint="wait for it, end it, or name another file with --progress",
        )
    try:
        yield
    finally:
        os.close(file)


def _load(path: Path, filters: tuple[str, ...], prefix: str) -> Progress | None:
    """What a file says; None = there is none yet.

    Raises:
        ConfigError: it is of another replay, or no such file.
    """
    try:
        with path.open("rb") as file:
            found = msgspec.json.decode(file.read(_PROGRESS_BYTES_MAX), type=Progress)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageUnavailable(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is no progress of a replay: {error}", path="progress") from None
    if (found.filters, found.prefix) != (tuple(sorted(filters)), prefix):
        raise ConfigError(
            f"{path} is of a replay with other --topic or --prefix",
            path="progress",
            hint="name another file, or delete this one to begin anew",
        )
    return found


def _save(path: Path, progress: Progress) -> None:
    path = path.absolute()
    replace_file(path.parent, path, msgspec.json.encode(progress) + b"\n")
