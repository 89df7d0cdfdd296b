"""Asks a running broker: the one on this machine over its admin socket, or that of a context."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, TypeVar, final

import msgspec

from perdure.admin.operation import Page, Request
from perdure.admin.problems import Problem
from perdure.admin.table import operation_of
from perdure.admin.wire import Answer, Ask, encode_line
from perdure.cli.contexts import selected
from perdure.cli.exit_codes import MAY_BE_DONE, CommandFailed, ExitCode
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
    "unauthorized": ExitCode.NOT_PERMITTED,
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


class AdminTransport(Protocol):
    """A way to a broker."""

    def ask(self, name: str, request: bytes) -> bytes | Problem:
        """The result of an operation, JSON, or why there is none.

        Raises:
            CommandFailed: nobody answers.
        """
        ...

    def close(self) -> None:
        """Hang up."""
        ...


@final
class SocketExchange:
    """The admin socket of a broker on this machine."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._lines = connected.makefile("rb")

    def ask(self, name: str, request: bytes) -> bytes | Problem:
        """The result of an operation, or why there is none.

        Raises:
            CommandFailed: the broker does not answer.
        """
        try:
            self._socket.sendall(encode_line(Ask(name, msgspec.Raw(request))))
            line = self._lines.readline()
        except TimeoutError as error:
            raise _silent(error, hint=MAY_BE_DONE) from error
        except OSError as error:
            raise _silent(error) from error
        if not line.endswith(b"\n"):
            raise CommandFailed("the broker closed the connection", ExitCode.UNAVAILABLE)
        answer = msgspec.json.decode(line, type=Answer)
        return bytes(answer.result) if answer.error is None else answer.error

    def close(self) -> None:
        """Hang up."""
        self._lines.close()
        self._socket.close()


@final
class AdminClient:
    """A connection to a broker; a context manager.

    Args:
        transport: the way to it.
    """

    def __init__(self, transport: AdminTransport) -> None:
        self._transport = transport

    @classmethod
    def connect(
        cls, directory: Path, *, timeout_s: float | None = None, or_read: bool = False
    ) -> AdminClient | None:
        """Connect to the broker of the context in use, or to that of a data directory; None if no
        broker runs on it.

        Args:
            directory: of the broker's data.
            timeout_s: without a byte from the broker for so long, it is taken to hang.
            or_read: the files beside a running broker tell as much, to whoever may read them: None
                as well if one runs and does not let us.

        Raises:
            CommandFailed: one runs and does not let us, or does not answer.
        """
        if timeout_s is None:
            timeout_s = TIMEOUT_S
        found = selected()
        if found is not None:
            from perdure.cli.http_transport import HttpTransport

            return cls(HttpTransport(found[1], timeout_s=timeout_s))
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
            # Who may not write to a socket is not told whether anybody listens.
            from perdure.storage.rocksdb.directory import is_owned

            if or_read or not is_owned(directory):
                return None
            raise CommandFailed(
                f"{directory / SOCKET_NAME} belongs to another user",
                ExitCode.NOT_PERMITTED,
                hint="run this as the user that runs the broker",
            ) from error
        except OSError as error:
            connecting.close()
            raise _silent(error) from error
        return cls(SocketExchange(connecting))

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
        self._transport.close()

    def call(self, request: Request[R]) -> R:
        """Ask, and return the result.

        Raises:
            CommandFailed: the broker refused, or does not answer.
        """
        operation = operation_of(type(request))
        answer = self.ask(operation.name, msgspec.json.encode(request))
        result: R = msgspec.json.decode(answer, type=operation.result)
        return result

    def ask(self, name: str, request: bytes) -> bytes:
        """Ask with JSON, for JSON.

        Raises:
            CommandFailed: the broker refused, or does not answer.
        """
        answer = self._transport.ask(name, request)
        if isinstance(answer, bytes):
            return answer
        code = _EXIT_CODES.get(answer.code, ExitCode.UNAVAILABLE)
        raise CommandFailed(answer.message, code, hint=answer.hint)

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


def _silent(error: OSError, hint: str = "") -> CommandFailed:
    return CommandFailed(
        f"the broker does not answer: {error.strerror or error}", ExitCode.UNAVAILABLE, hint=hint
    )
