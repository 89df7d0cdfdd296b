"""A plugin of pytest for CI: what failed, so that it can be run once more, alone.

``-p tools.outcome --outcome FOLDER`` writes two files at the end of a run that failed:

- ``kind``: ``tests`` if nothing but tests failed, at most ``FAILED_MAX`` of them; otherwise what
  else is wrong (a file that can't be collected, a worker that died, an error of pytest), which no
  second run may excuse.
- ``failed``: the tests, one a line, as ``pytest @FOLDER/failed`` takes them.

After a run that passed neither is there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

FAILED_MAX: Final = 10
"""More than that is no matter of a busy machine."""
_CRASHED: Final = "???"
"""When a test failed, by xdist, if its worker died."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--outcome``."""
    parser.addoption("--outcome", type=Path, help="folder for what failed")


def pytest_configure(config: pytest.Config) -> None:
    """Watch, in the process that hears of all tests."""
    folder = config.getoption("--outcome")
    if folder is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Outcome(folder))


class Outcome:
    """Takes down what fails."""

    def __init__(self, folder: Path) -> None:
        self._failed, self._kind = folder / "failed", folder / "kind"
        for old in (self._failed, self._kind):
            old.unlink(missing_ok=True)
        self._tests: dict[str, None] = {}
        self._worse = ""

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that can't be collected."""
        if report.failed:
            self._worse = f"not collected: {report.nodeid}"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test, or its worker."""
        if not report.failed:
            return
        self._tests[report.nodeid] = None
        if str(report.when) == _CRASHED:
            self._worse = f"a worker died: {report.nodeid}"

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write it."""
        if exitstatus == pytest.ExitCode.OK:
            return
        kind = self._worse
        if not kind and (exitstatus != pytest.ExitCode.TESTS_FAILED or not self._tests):
            kind = f"pytest ended with {int(exitstatus)}"
        if not kind and len(self._tests) > FAILED_MAX:
            kind = f"{len(self._tests)} tests failed"
        self._failed.write_text("".join(f"{test}\n" for test in self._tests))
        self._kind.write_text(kind or "tests")
