"""What ends the process: a task that failed, a callback that raised."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, final

from perdure.broker.runtime.unexpected_errors import UnexpectedErrors
from perdure.observe.logs import get_logger

log = get_logger("server")


@final
class TaskWatch:
    """Ends the process with the first of the broker's tasks that fails; made on the loop."""

    def __init__(self) -> None:
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def task_failed(self, error: BaseException) -> None:
        """A task has raised."""
        if not self._failure.done():
            self._failure.set_exception(error)

    async def run(self) -> None:
        """Wait for a failure and raise it."""
        await self._failure

    def close(self) -> None:
        """Wait no longer."""
        self._failure.cancel()


def loop_failures(
    stop: Callable[[BaseException], None], unexpected_errors: UnexpectedErrors
) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """What to do with an exception that the event loop has caught.

    Steps of one connection catch their own. A callback that has raised is one of all clients (the
    end of a turn, a commit): what it left half done must not be built upon, so the broker stops.

    Args:
        stop: ends the process with an error.
        unexpected_errors: told of what belongs to one transport or to a future that nobody awaited.
    """

    def handle(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        message = str(context.get("message", ""))
        if not isinstance(error, BaseException):
            log.error("loop.warning", message=message)
        elif "handle" in context and "transport" not in context and "protocol" not in context:
            log.error("loop.failed", message=message, exc_info=error)
            stop(error)
        else:
            unexpected_errors.report(error, "loop", message=message)

    return handle
