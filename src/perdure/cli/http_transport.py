"""Asks a broker over its HTTP API: the operations of the table, at their routes."""

from __future__ import annotations

import http.client
import re
import ssl
from typing import Any, Final, final
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from perdure.admin.openapi import HEADERS, IN_QUERY, PREFIX
from perdure.admin.problems import Problem
from perdure.admin.table import OPERATIONS
from perdure.admin.wire import ANSWER_BYTES_MAX
from perdure.cli.contexts import Context
from perdure.cli.exit_codes import MAY_BE_DONE, CommandFailed, ExitCode

_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_UNAUTHORIZED: Final = 401


class _Wire(msgspec.Struct):
    code: str
    message: str
    details: dict[str, Any] = {}


@final
class HttpTransport:
    """A connection to the API of a broker.

    Args:
        context: where it is, and with which key.
        timeout_s: without a byte from the broker for so long, it is taken to hang.
    """

    def __init__(self, context: Context, *, timeout_s: float) -> None:
        self._context = context
        parts = urlsplit(context.url)
        self._prefix = parts.path.rstrip("/") + PREFIX
        host = parts.hostname or ""
        if parts.scheme == "https":
            trusted = ssl.create_default_context(cafile=context.ca_file or None)
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, parts.port, timeout=timeout_s, context=trusted
            )
        else:
            self._connection = http.client.HTTPConnection(host, parts.port, timeout=timeout_s)

    def ask(self, name: str, request: bytes) -> bytes | Problem:
        """The result of an operation, or why there is none.

        Raises:
            CommandFailed: nobody answers.
        """
        route = OPERATIONS[name].http
        if route is None:
            return Problem("not_available", f"{name} is asked on the broker's machine alone")
        fields: dict[str, Any] = msgspec.json.decode(request)
        path = _PARAMETER.sub(lambda found: quote(str(fields.pop(found[1])), safe=""), route.path)
        headers = {"Authorization": f"Bearer {self._context.key}"}
        body = None
        if route.method in IN_QUERY:
            given = {key: _text(value) for key, value in fields.items() if value is not None}
            path += f"?{urlencode(given)}" if given else ""
        else:
            for field, header in HEADERS.items():
                value = fields.pop(field, None)
                if value:
                    headers[header] = str(value)
            body = msgspec.json.encode(fields)
            headers["Content-Type"] = "application/json"
        status, answer = self._send(route.method, self._prefix + path, body, headers)
        if status < http.client.BAD_REQUEST:
            return answer
        return self._problem(status, answer)

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def _send(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        hint = ""
        try:
            self._connection.request(method, path, body=body, headers=headers)
            hint = MAY_BE_DONE
            response = self._connection.getresponse()
            answer = response.read(ANSWER_BYTES_MAX + 1)
        except ssl.SSLError as error:
            raise self._away(
                f"{error.reason}; its authority is --ca-file of the context"
            ) from error
        except TimeoutError as error:
            raise self._away("timed out", hint=hint) from error
        except (OSError, http.client.HTTPException) as error:
            raise self._away(str(error) or type(error).__name__) from error
        if len(answer) > ANSWER_BYTES_MAX:
            raise self._away(f"its answer has more than {ANSWER_BYTES_MAX} bytes")
        return response.status, answer

    def _problem(self, status: int, answer: bytes) -> Problem:
        try:
            found = msgspec.json.decode(answer, type=_Wire)
        except ValueError:
            raise self._away(f"status {status}, and no answer of Perdure's API") from None
        hint = str(found.details.get("hint", ""))
        if status == _UNAUTHORIZED:
            hint = "its key is wrong or was revoked: perdure context add"
        return Problem(found.code, found.message, hint, found.details)

    def _away(self, why: str, hint: str = "") -> CommandFailed:
        return CommandFailed(
            f"{self._context.url} does not answer: {why}", ExitCode.UNAVAILABLE, hint=hint
        )


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
