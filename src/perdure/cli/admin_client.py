"""The other end of the admin socket: asks the running broker on this machine."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar, final

import msgspec

from perdure.admin.operation import Page, Request
from perdure.admin.table import operation_of
from perdure.admin.wire import Answer, Ask, encode_line
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.observe.admin_socket import SOCKET_NAME, socket_address

R = TypeVar("R")
T = TypeVar("T")

TIMEOUT_S: Final = 30.0
"""Without a byte from the broker for so long, it is taken to hang."""

_EXIT_CODES: Final = {
    "not_found": ExitCode.NOT_FOUND,
    "unknown_operation": ExitCode.USAGE,
    "bad_request": ExitCode.DATA,
    "too_large": ExitCode.DATA,
    "forbidden": ExitCode.NOT_PERMITTED,
    "not_available": ExitCode.CONFIG,
    "conflict": ExitCode.DATA,
    "precondition_failed": ExitCode.TEMPORARY,
    "too_many_requests": ExitCode.TEMPORARY,
    "busy": ExitCode.TEMPORARY,
    "config_invalid": ExitCode.CONFIG,
    "mqtt_error": ExitCode.DATA,
    "storage_unavailable": ExitCode.TEMPORARY,
    "storage_timeout": ExitCode.TEMPORARY,
    "storage_conflict": ExitCode.TEMPORARY,
    "storage_full": ExitCode.TEMPORARY,
}


@final
class AdminClient:
    """A connection to the broker of a data directory; a context manager."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._lines = connected.makefile("rb")

    @classmethod
    def connect(cls, directory: Path, *, timeout_s: float = TIMEOUT_S) -> AdminClient | None:
        """Connect, or None if no broker runs on the directory.

        Args:
            directory: of the broker's data.
            timeout_s: without a byte from the broker for so long, it is taken to hang.

        Raises:
            CommandFailed: one runs and does not let us, or does not answer.
        """
        connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connecting.settimeout(timeout_s)
        try:
            with socket_address(directory) as address:
                connecting.connect(address)
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
            connecting.close()
            return None
        except PermissionError as error:
            connecting.close()
            raise CommandFailed(
                f"{directory / SOCKET_NAME} belongs to another user",
                ExitCode.NOT_PERMITTED,
                hint="run this as the user that runs the broker",
            ) from error
        except OSError as error:
            connecting.close()
            raise _silent(error) from error
        return cls(connecting)

    def __enter__(self) -> AdminClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._lines.close()
        self._socket.close()

    def call(self, request: Request[R]) -> R:
        """Ask, and return the result.

        Raises:
            CommandFailed: the broker refused, or does not answer.
        """
        operation = operation_of(type(request))
        line = encode_line(Ask(operation.name, msgspec.Raw(msgspec.json.encode(request))))
        try:
            self._socket.sendall(line)
        except OSError as error:
            raise _silent(error) from error
        result: R = msgspec.json.decode(self._answer(), type=operation.result)
        return result

    def items(self, request: Request[Page[T]]) -> Iterator[T]:
        """Ask for a list, and yield its items, page by page.

        Raises:
            CommandFailed: the broker refused, or does not answer.
        """
        while True:
            page = self.call(request)
            yield from page.items
            if page.next_cursor is None:
                return
            request = msgspec.structs.replace(request, cursor=page.next_cursor)

    def _answer(self) -> bytes:
        try:
            line = self._lines.readline()
        except OSError as error:
            raise _silent(error) from error
        if not line.endswith(b"\n"):
            raise CommandFailed("the broker closed the connection", ExitCode.UNAVAILABLE)
        answer = msgspec.json.decode(line, type=Answer)
        if answer.error is not None:
            code = _EXIT_CODES.get(answer.error.code, ExitCode.UNAVAILABLE)
            raise CommandFailed(answer.error.message, code, hint=answer.error.hint)
        return bytes(answer.result)


def _silent(error: OSError) -> CommandFailed:
    return CommandFailed(
        f"the broker does not answer: {error.strerror or error}", ExitCode.UNAVAILABLE
    )
