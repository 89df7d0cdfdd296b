"""Requests to an application without a network."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

TOKEN = "0123456789abcdef0123456789abcdef"


class Answer(NamedTuple):
    """What an application sent."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_complete: bool

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


async def ask(
    app: Any,
    path: str,
    *,
    method: str = "GET",
    query: str = "",
    body: bytes | msgspec.Struct = b"",
    token: str | None = TOKEN,
    leave_after: int | None = None,
    sent: list[bytes] | None = None,
    host: str = "",
    headers: dict[str, str] | None = None,
) -> Answer:
    """Send one request.

    Args:
        path: the target as it is sent: in absolute form, or with percent signs.
        host: of the header, empty = none is sent.
        headers: others.
        leave_after: parts of the body after which the client goes away.
        sent: gets the parts of the body, also of an answer that is broken off.
    """
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    given = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    if token is not None:
        given.append((b"authorization", f"Bearer {token}".encode()))
    if host:
        given.append((b"host", host.encode()))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": given,
        "client": ("127.0.0.1", 1234),
        "server": ("127.0.0.1", 80),
    }
    messages: list[MutableMapping[str, Any]] = []
    read = False
    left = asyncio.Event()

    async def receive() -> MutableMapping[str, Any]:
        nonlocal read
        if not read:
            read = True
            return {"type": "http.request", "body": raw, "more_body": False}
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        messages.append(message)
        if sent is not None:
            sent.append(message.get("body", b""))
        if leave_after is not None and len(messages) > leave_after:
            left.set()
        await asyncio.sleep(0)

    await app(scope, receive, send)
    start, *parts = messages
    return Answer(
        start["status"],
        {name.decode(): value.decode() for name, value in start["headers"]},
        b"".join(part.get("body", b"") for part in parts),
        bool(parts) and not parts[-1].get("more_body", False),
    )
