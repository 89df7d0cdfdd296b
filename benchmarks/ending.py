"""How a benchmark that is ended from outside ends."""

from __future__ import annotations

import signal
from typing import NoReturn


def end_in_order() -> None:
    """SIGTERM ends it as Ctrl-C does: the servers that it has started are stopped. Else they stay,
    and each takes part in what is measured next."""
    signal.signal(signal.SIGTERM, _end)


def _end(number: int, _frame: object) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # once: some send it to a process and to its group
    raise KeyboardInterrupt
