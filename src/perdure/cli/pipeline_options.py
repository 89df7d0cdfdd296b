"""What the commands of ``perdure pipeline`` have in common."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from perdure.cli.data import broker_options
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.extras import EXTRA_OF
from perdure.cli.range_options import since_option, topic_option
from perdure.clock import SystemClock
from perdure.config.schema import Config, PipelineConfig
from perdure.config.units import format_time
from perdure.errors import ConfigError

if TYPE_CHECKING:
    from perdure.pipeline.jobs.archive import Execute
    from perdure.pipeline.log_index import LogIndex
    from perdure.pipeline.options import ReadOptions

NO_SPARK: Final = "none"
"""``pipeline.master`` for jobs without Spark and Java."""

MEMORY: Final = "2g"

_F = TypeVar("_F", bound=Callable[..., Any])


def topic_options(command: Any) -> Any:
    """Add ``--topic``, ``--from``, ``--master`` and ``--memory``."""
    for option in (
        click.option("--memory", help="Of the Spark driver; else pipeline.memory (2g)."),
        click.option(
            "--master",
            metavar="URL",
            help="Have Spark do it, there (local[*], or its address); else pipeline.master.",
        ),
        since_option,
        topic_option(),
    ):
        command = option(command)
    return command


class From(msgspec.Struct, frozen=True):
    """Where the log is that a command reads.

    Attributes:
        data: the data directory.
        url: instead of it, a broker's HTTP interface; empty = none.
        token_file: with its token, or None.
        ca_file: authority of its certificate, or None.
        pipeline: the section of the configuration.
        config: all of it.
    """

    data: Path
    url: str = ""
    token_file: Path | None = None
    ca_file: Path | None = None
    pipeline: PipelineConfig = PipelineConfig()
    config: Config = Config()

    @property
    def place(self) -> str:
        """For messages and titles."""
        return self.url or str(self.data)


def log_options(command: _F) -> _F:
    """Add ``--data`` and its like, and ``--url`` and its like; the command gets both as ``log``."""

    @broker_options
    @click.option(
        "--url",
        default="",
        metavar="URL",
        help="Instead of a directory: http.bind of a broker; else pipeline.log.url.",
    )
    @click.option(
        "--token-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="For --url; else the variable PERDURE_TOKEN.",
    )
    @click.option(
        "--ca-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="For --url: authority of its certificate.",
    )
    @functools.wraps(command)
    def with_log(
        *args: Any,
        config: Config,
        url: str,
        token_file: Path | None,
        ca_file: Path | None,
        **kwargs: Any,
    ) -> Any:
        has_data = click.get_current_context().params.get("data_option") is not None
        if url and has_data:
            raise click.UsageError("--data and --url name a log each: take one of them")
        if not has_data:
            url = url or config.pipeline.log.url
        if not url and (token_file or ca_file):
            raise click.UsageError("--token-file and --ca-file are for --url")
        return command(*args, log=log_of(config, url, token_file, ca_file), **kwargs)

    return with_log  # type: ignore[return-value]


def log_of(
    config: Config, url: str, token_file: Path | None = None, ca_file: Path | None = None
) -> From:
    """The log of a configuration: a broker's, if ``url`` names one."""
    data, given = Path(config.storage.path), config.pipeline.log
    if not url:
        return From(data, pipeline=config.pipeline, config=config)
    token = token_file or (Path(given.token_file) if given.token_file else None)
    authority = ca_file or (Path(given.ca_file) if given.ca_file else None)
    return From(data, url, token, authority, config.pipeline)


def read_options(log: From, filters: tuple[str, ...], **others: str | None) -> ReadOptions:
    """Checked options of a read.

    Raises:
        CommandFailed: there is no database.
        click.BadParameter: an option cannot be used.
        ConfigError: the pipeline is not installed.
    """
    with pipeline_installed():
        from perdure.pipeline.options import parse_options
    given = {name: value for name, value in others.items() if value is not None}
    if log.url:
        given["url"] = log.url
        if log.token_file is not None:
            given["tokenFile"] = str(log.token_file)
        if log.ca_file is not None:
            given["caFile"] = str(log.ca_file.resolve())
    elif (log.data / "CURRENT").exists():
        given["path"] = str(log.data.resolve())
    else:
        raise CommandFailed(
            f"{log.data} holds no database",
            ExitCode.NOT_FOUND,
            hint="name the broker's data directory with --data, or a running broker with --url",
        )
    if filters:
        given["topic"] = msgspec.json.encode(filters).decode()
    try:
        return parse_options(given, SystemClock().now_us(), environ=os.environ)
    except ConfigError as error:
        raise click.BadParameter(error.message) from error


@contextlib.contextmanager
def opened_log(options: ReadOptions) -> Iterator[LogIndex]:
    """The log, before Spark is started for it: what is wrong is told at once.

    Raises:
        CommandFailed: the broker wants another token.
        ConfigError: the pipeline is not installed, or only in part.
        StorageError: it cannot be read.
    """
    with pipeline_installed():
        from perdure.pipeline.conditions import Narrowing
        from perdure.pipeline.log_source import plan

    with opened_index(options) as index:
        # As Spark will do it, which could only tell that something failed.
        plan(index, options, Narrowing())
        yield index


@contextlib.contextmanager
def opened_index(options: ReadOptions) -> Iterator[LogIndex]:
    """The log as far as positions go, which needs no extra.

    Raises:
        CommandFailed: the broker wants another token.
        StorageError: it cannot be read.
    """
    from perdure.pipeline.log_index import opened

    try:
        with opened(options) as index:
            yield index
    except ConfigError as error:
        if error.path != "token":
            raise
        hint = "--token-file FILE or the variable PERDURE_TOKEN; see http.token_file"
        raise CommandFailed(error.message, ExitCode.NOT_PERMITTED, hint=hint) from error


@contextlib.contextmanager
def spark_session(
    name: str, *, master: str | None, memory: str | None, is_short: bool = False
) -> Iterator[Any]:
    """A Spark session for the time of a command, or the one that this process has already.

    Args:
        name: of the job.
        master: where Spark runs; None = this machine.
        memory: of the driver; None = what is usual.
        is_short: it is for one query of a few million messages.

    Raises:
        ConfigError: the pipeline is not installed.
    """
    with pipeline_installed():
        from perdure.pipeline.session import NICENESS, SHORT, build, has_session
    # That of ``pipeline run`` goes on after a job of it.
    is_ours = not has_session()
    settings = SHORT if is_short else None
    spark = build(
        master=master,
        memory=memory or MEMORY,
        app=f"perdure-{name}",
        settings=settings,
        # Somebody waits for a short one; the others take their time.
        niceness=0 if is_short else NICENESS,
    )
    try:
        yield spark
    finally:
        if is_ours:
            spark.stop()


def named_spark(settings: PipelineConfig, master: str | None) -> str:
    """Where Spark runs, if that was said; empty = it was not, or that there is none."""
    where = master or settings.master
    return "" if where == NO_SPARK else where


def spark_for(
    name: str,
    settings: PipelineConfig,
    master: str | None,
    memory: str | None,
    *,
    without: str,
    is_short: bool = False,
) -> contextlib.AbstractContextManager[Any]:
    """A session where the settings say.

    Args:
        name: of the job.
        settings: where Spark runs.
        master, memory: instead of the settings.
        without: what is to be installed for the job to need no Spark.
        is_short: see ``spark_session``.

    Raises:
        CommandFailed: they say that there is none.
    """
    where = master or settings.master
    if where == NO_SPARK:
        raise CommandFailed(
            f"{name} needs Spark or {without}, and pipeline.master is {NO_SPARK}",
            ExitCode.USAGE,
            hint=f"pip install '{without}', or --master 'local[*]'",
        )
    return spark_session(
        name, master=where or None, memory=memory or settings.memory, is_short=is_short
    )


@contextlib.contextmanager
def executor(
    settings: PipelineConfig, name: str, *, master: str | None = None, memory: str | None = None
) -> Iterator[tuple[Execute, Callable[[str], AbstractContextManager[None]]]]:
    """What runs the tasks of an archive, and shows how far they are.

    Args:
        settings: where Spark runs; if nowhere, the tasks run in this process.
        name: of the job.
        master, memory: instead of the settings.
    """
    where = named_spark(settings, master)
    with pipeline_installed():
        from perdure.pipeline.jobs.archive import execute_here
    if not where:
        yield execute_here, lambda _: contextlib.nullcontext()
        return
    with pipeline_installed():
        from perdure.pipeline.session import progress
        from perdure.pipeline.spark_jobs import SparkExecute
    with spark_session(name, master=where, memory=memory or settings.memory) as spark:
        yield SparkExecute(spark), functools.partial(progress, spark)


@contextlib.contextmanager
def pipeline_installed() -> Iterator[None]:
    """Around imports of the pipeline: say what to do where its extra is missing.

    Raises:
        ConfigError: it is.
    """
    try:
        yield
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        extra = EXTRA_OF.get(package, "spark")
        told = "the data pipeline" if extra == "spark" else package
        raise ConfigError(
            f"{told} is not installed", hint=f"pip install 'perdure[{extra}]'"
        ) from error


def output_path(_context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Refuse a file that cannot be written before an hour of work, not after it."""
    if path is not None and not path.absolute().parent.is_dir():
        raise click.BadParameter(f"{path.parent} is no directory", param=option)
    return path


def plain(value: Any) -> Any:
    """Rows of an answer with moments as the other commands write them."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, datetime):
        return format_time(round(value.timestamp() * 1_000_000))
    return value
