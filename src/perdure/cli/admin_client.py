"""The other end of the admin socket: asks the running broker on this machine."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, final

import msgspec

from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.observe.admin_socket import SOCKET_NAME, socket_address

TIMEOUT_S: Final = 30.0
"""Without a byte from the broker for so long, it is taken to hang."""

_EXIT_CODES: Final = {
    "not_found": ExitCode.NOT_FOUND,
    "bad_request": ExitCode.DATA,
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
    def connect(cls, directory: Path) -> AdminClient | None:
        """Connect, or None if no broker runs on the directory.

        Raises:
            CommandFailed: one runs and does not let us, or does not answer.
        """
        connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connecting.settimeout(TIMEOUT_S)
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

    def call(self, command: str, **arguments: str) -> dict[str, Any]:
        """Ask, and return the result.

        Raises:
            CommandFailed: the broker refused, or does not answer.
        """
        self._ask(command, arguments)
        answer = self._answer()
        result: dict[str, Any] = answer["result"]
        return result

    def rows(self, command: str, **arguments: str) -> Iterator[dict[str, Any]]:
        """Ask, and yield the rows as they come.

        Raises:
            CommandFailed: the broker refused, or does not answer.
        """
        self._ask(command, arguments)
        while "row" in (answer := self._answer()):
            yield answer["row"]

    def _ask(self, command: str, arguments: dict[str, str]) -> None:
        line = msgspec.json.encode({"command": command, "arguments": arguments}) + b"\n"
        try:
            self._socket.sendall(line)
        except OSError as error:
            raise _silent(error) from error

    def _answer(self) -> dict[str, Any]:
        try:
            line = self._lines.readline()
        except OSError as error:
            raise _silent(error) from error
        if not line.endswith(b"\n"):
            raise CommandFailed("the broker closed the connection", ExitCode.UNAVAILABLE)
        answer: dict[str, Any] = msgspec.json.decode(line)
        refusal = answer.get("error")
        if refusal is not None:
            code = _EXIT_CODES.get(refusal["code"], ExitCode.UNAVAILABLE)
            raise CommandFailed(refusal["message"], code)
        return answer


def _silent(error: OSError) -> CommandFailed:
    return CommandFailed(
        f"the broker does not answer: {error.strerror or error}", ExitCode.UNAVAILABLE
    )
