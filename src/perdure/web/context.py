"""What the handlers of one process share."""

from __future__ import annotations

import asyncio
import functools
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar, final

import msgspec

from perdure.admin.client import AsyncAdmin
from perdure.identity.service import Identity
from perdure.pipeline.log_index import BulkLog
from perdure.storage.rocksdb.bulk import LogFiles
from perdure.web.credentials import ApiKeySource, CookieSource
from perdure.web.health import Health
from perdure.web.login_tokens import LoginTokenSource
from perdure.web.principals import Principals, PrincipalSource, TokenSource
from perdure.web.settings import WebSettings
from perdure.web.tokens import Tokens
from perdure.web.traffic import TRAFFIC, Traffic
from perdure.web.views import Views

SPARE_THREADS: Final = 4
"""For questions about the log beside the reads; they take milliseconds."""

Report: TypeAlias = Callable[..., None]

T = TypeVar("T")

REPORTS_PER_S_MAX: Final = 20


def report_on_stdout(event: str, **fields: Any) -> None:
    """Tell the broker's process, which logs it: one line of JSON."""
    line = msgspec.json.encode({"event": event, **fields}) + b"\n"
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


@final
class PacedReport:
    """Writes few lines in a second, whatever is asked: the broker's loop reads each of them.

    Args:
        report: writes one.
        clock: monotonic, seconds.
    """

    def __init__(self, report: Report, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._report = report
        self._clock = clock
        self._begun_s = float("-inf")
        self._written = 0
        self._left_out = 0

    def __call__(self, event: str, **fields: Any) -> None:
        """Write a line, or count it; the next one says how many were left out."""
        now_s = self._clock()
        if now_s - self._begun_s >= 1:
            self._begun_s, self._written = now_s, 0
        if self._written >= REPORTS_PER_S_MAX:
            self._left_out += 1
            return
        self._written += 1
        if self._left_out:
            fields["left_out"], self._left_out = self._left_out, 0
        self._report(event, **fields)


@final
class Context:
    """Everything that requests need.

    Args:
        settings: of the process.
        identity: users, keys and logins.
        report: writes to the log.
    """

    def __init__(
        self, settings: WebSettings, identity: Identity, report: Report = report_on_stdout
    ) -> None:
        self.settings = settings
        self.report = PacedReport(report)
        self._report = report
        self.views = Views(Path(settings.data), opener=_opener(settings))
        self.tokens = Tokens(Path(settings.token_file))
        self.admin = AsyncAdmin(Path(settings.data))
        self.identity = identity
        self.login_tokens: LoginTokenSource | None = None
        sources: list[PrincipalSource] = [
            TokenSource(self.tokens, self.report),
            ApiKeySource(identity),
            CookieSource(identity),
        ]
        if settings.token_store:
            self.login_tokens = LoginTokenSource(settings, lambda: time.time_ns() // 1_000)
            sources.append(self.login_tokens)
        self.principals = Principals(sources)
        self.health = Health(self.admin)
        self.traffic = Traffic()
        self.reads = asyncio.Semaphore(settings.reads_max)
        self._threads = ThreadPoolExecutor(
            settings.reads_max + SPARE_THREADS, thread_name_prefix="log"
        )

    def report_traffic(self) -> None:
        """Report to the broker what was answered since the last time."""
        traffic = self.traffic.take()
        if traffic is not None:
            self._report(TRAFFIC, **msgspec.structs.asdict(traffic))

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run what reads files beside the loop."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """Let go of threads and views; nothing may run any more."""
        self._threads.shutdown()
        self.views.close()


def _opener(settings: WebSettings) -> Callable[[Path], BulkLog]:
    """What opens the log."""
    storage = settings.storage
    if storage is None:
        return LogFiles
    # The drivers are extras, which a broker on a directory does without.
    from perdure.pipeline.server_log import open_server_log

    return functools.partial(open_server_log, storage)
