"""A Spark session with the settings that were measured to matter, and a quiet console.

``build`` is for notebooks, scripts and the ``perdure pipeline`` commands. A session that was made
otherwise reads the log as well; it only starts its batches later and pushes no filters down.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from perdure.errors import ConfigError

JAVA_MIN: Final = 17
_JAVA_TIMEOUT_S: Final = 30
_POLL_S: Final = 0.2

NICENESS: Final = 10
"""A micro-batch keeps all cores busy for a tenth of a second; a broker on the same ones would have
its clients wait for that."""

_groups = itertools.count(1)
"""Jobs that are shown together have a group of their own, or the next ones would add to them."""

SETTINGS: Final[Mapping[str, str]] = {
    # Off in Spark by default; a Python source that takes filters needs it.
    "spark.sql.python.filterPushdown.enabled": "true",
    # On a local disk the default manager costs a micro-batch 40 ms more. One driver to a
    # checkpoint.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    # TCP between a task and its Python worker costs a delayed acknowledgement of 40 ms.
    "spark.python.unix.domain.socket.enabled": "true",
    # A batch of columns has megabytes; the default of 64 KiB costs a tenth more processor time.
    "spark.buffer.size": "262144",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Reads make much garbage that dies young. (Stopping at Java's first compiler starts a second
    # sooner, and then halves the rate of every read.)
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
}
"""Settings of every session; what the caller gives goes before them."""

SHORT: Final[Mapping[str, str]] = {
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
"""Settings of a session for one short query: Java's second compiler would take longer than all
the rest, and pay back from ``SHORT_ROWS_MAX`` messages on."""

SHORT_ROWS_MAX: Final = 5_000_000


def check_java(environ: Mapping[str, str] | None = None) -> int:
    """Make sure that Spark can start.

    Args:
        environ: environment variables; the process's own by default.

    Returns:
        The major version of Java.

    Raises:
        ConfigError: there is no Java, or it is too old; says what to do.
    """
    environ = os.environ if environ is None else environ
    home = environ.get("JAVA_HOME")
    java = (
        str(Path(home, "bin", "java")) if home else shutil.which("java", path=environ.get("PATH"))
    )
    hint = (
        f"install Java {JAVA_MIN} (Debian and Ubuntu: apt install openjdk-{JAVA_MIN}-jre-headless; "
        f"macOS: brew install openjdk@{JAVA_MIN}) or set JAVA_HOME"
    )
    if java is None:
        raise ConfigError(f"Spark needs Java {JAVA_MIN}, and there is no java", hint=hint)
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own java
            [java, "-version"], check=True, capture_output=True, text=True, timeout=_JAVA_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{java} does not run: {reason}", hint=hint) from error
    number = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    version = int(number[1]) if number else 0
    if version < JAVA_MIN:
        raise ConfigError(f"Spark needs Java {JAVA_MIN}, and {java} is {version}", hint=hint)
    return version


def has_session() -> bool:
    """Whether this process has a session that runs."""
    if "pyspark.sql" not in sys.modules:
        return False
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


def build(
    *,
    master: str | None = None,
    app: str = "perdure",
    memory: str = "2g",
    log_file: Path | None = None,
    settings: Mapping[str, str] | None = None,
    niceness: int = NICENESS,
) -> Any:
    """A Spark session that knows ``format("perdure")``.

    Args:
        master: where Spark runs; None = this machine, all cores, unless the environment says.
        app: name of the application.
        memory: of the driver, as Spark writes sizes.
        log_file: where Java logs to; None = a file in the temporary directory.
        settings: more settings, or other values for those in ``SETTINGS``.
        niceness: of Java and the processes that it starts, where this call starts it; 0 = as this
            process.

    Raises:
        ConfigError: the extra is not installed, or Java is missing.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigError(
            "pyspark is not installed", hint="pip install 'perdure[spark]'"
        ) from error
    from perdure.pipeline.source import PerdureDataSource

    check_java()
    # Spark would take the first python3 of PATH for its workers, not this one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # Stack traces of every failed query, as JSON, on the console.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    builder = SparkSession.builder.appName(app).config("spark.driver.memory", memory)
    if master is not None or "SPARK_REMOTE" not in os.environ:
        builder = builder.master(master or os.environ.get("MASTER", "local[*]"))
    for name, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(name, value)
    starts = not has_session()
    with _quiet(log_file or Path(tempfile.gettempdir(), f"{app}-spark-{os.getpid()}.log")):
        spark = builder.getOrCreate()
    if niceness and starts:
        _yield_to_others(spark, niceness)
    # Workers of a cluster run registered sources under their own Python, found ones under the
    # driver's path.
    spark.dataSource.register(PerdureDataSource)
    return spark


def _yield_to_others(spark: Any, niceness: int) -> None:
    """Let other processes of this machine, such as a broker, run before Java and its children."""
    gateway = getattr(getattr(spark, "_sc", None), "_gateway", None)
    process = getattr(gateway, "proc", None)
    if process is None or not hasattr(os, "setpriority"):
        return
    # On Linux each thread has its own; threads and processes that come later inherit it.
    threads = [int(each.name) for each in Path(f"/proc/{process.pid}/task").glob("*")]
    for thread in threads or [process.pid]:
        with contextlib.suppress(OSError):
            if os.getpriority(os.PRIO_PROCESS, thread) < niceness:
                os.setpriority(os.PRIO_PROCESS, thread, niceness)


@contextlib.contextmanager
def _quiet(log_file: Path) -> Iterator[None]:
    """Let Java, which is started meanwhile and keeps the descriptor, log to a file."""
    sys.stderr.flush()
    console = os.dup(2)
    log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(log, 2)
        yield
    finally:
        os.dup2(console, 2)
        os.close(console)
        os.close(log)


@contextlib.contextmanager
def progress(spark: Any, label: str, *, show: bool | None = None) -> Iterator[None]:
    """Show how many tasks of the jobs started meanwhile are done, on a terminal.

    Args:
        spark: a session that is no Connect session.
        label: stands before the bar.
        show: None = if standard error is a terminal.
    """
    if not (sys.stderr.isatty() if show is None else show):
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    group = f"perdure-{os.getpid()}-{next(_groups)}"
    spark.sparkContext.setJobGroup(group, label, interruptOnCancel=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tasks"),
        TimeElapsedColumn(),
    )
    stop = threading.Event()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)

        def follow() -> None:
            while not stop.wait(_POLL_S):
                total, done = task_counts(spark.sparkContext.statusTracker(), group)
                bar.update(task, total=total or None, completed=done)

        watcher = threading.Thread(target=follow, name="spark-progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            stop.set()
            watcher.join()


def task_counts(tracker: Any, group: str) -> tuple[int, int]:
    """How many tasks the stages of a job group have that have begun, and how many are done."""
    total = done = 0
    for job_id in tracker.getJobIdsForGroup(group):
        job = tracker.getJobInfo(job_id)
        for stage_id in job.stageIds if job else ():
            stage = tracker.getStageInfo(stage_id)
            # Spark lists stages that it will skip, too.
            if stage and (stage.numActiveTasks or stage.numCompletedTasks):
                total += stage.numTasks
                done += stage.numCompletedTasks
    return total, done
