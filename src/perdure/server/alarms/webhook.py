"""Sends changes of alarms to a service of the operator's.

Each is a POST of JSON, signed: ``X-Perdure-Signature: t=<seconds>,v1=<hex>`` is the HMAC-SHA256
of ``<seconds>.<body>``. One that is not answered with 2xx is sent again with growing pauses;
what waits meanwhile is bounded, the oldest goes. The broker never waits for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
import urllib.request
from collections import deque
from pathlib import Path
from typing import Final, final
from urllib.error import URLError

from perdure.errors import ConfigError
from perdure.observe.logs import get_logger

log = get_logger("alarms")

QUEUE_MAX: Final = 200
"""Changes that wait."""
TRIES_MAX: Final = 6
PAUSE_S: Final = 1.0
"""After the first failure; twice as long after each further one: half a minute in all."""
TIMEOUT_S: Final = 5.0
SECRET_BYTES_MIN: Final = 32


def read_secret(path: str) -> bytes:
    """The secret of a file, or none.

    Raises:
        ConfigError: the file cannot be read, or is too short.
    """
    if not path:
        return b""
    try:
        secret = Path(path).read_bytes().strip()
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"{path}: {reason}", path="alarms.webhook_secret_file") from error
    if len(secret) < SECRET_BYTES_MIN:
        raise ConfigError(
            f"{path} has fewer than {SECRET_BYTES_MIN} bytes",
            path="alarms.webhook_secret_file",
            hint="openssl rand -hex 32 makes one",
        )
    return secret


def signature(secret: bytes, body: bytes, at_s: int) -> str:
    """The value of ``X-Perdure-Signature``."""
    digest = hmac.new(secret, f"{at_s}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at_s},v1={digest}"


@final
class Webhook:
    """Sends, one after the other.

    Args:
        url: where to.
        secret: that signs; empty = not signed.
        pause_s: after the first failure.

    Attributes:
        lost: changes that were given up.
    """

    def __init__(self, url: str, secret: bytes, *, pause_s: float = PAUSE_S) -> None:
        self._url = url
        self._secret = secret
        self._pause_s = pause_s
        self._waiting: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self.lost = 0

    def put(self, body: bytes) -> None:
        """Have a change sent."""
        if len(self._waiting) == QUEUE_MAX:
            self._waiting.popleft()
            self._give_up("the queue is full")
        self._waiting.append(body)
        self._wake.set()

    async def run(self) -> None:
        """Send for ever."""
        while True:
            await self._wake.wait()
            while self._waiting:
                await self._send(self._waiting.popleft())
            self._wake.clear()

    async def _send(self, body: bytes) -> None:
        pause_s = self._pause_s
        reason = ""
        for attempt in range(TRIES_MAX):
            if attempt:
                await asyncio.sleep(pause_s)
                pause_s *= 2
            try:
                await asyncio.to_thread(self._post, body)
            except (URLError, OSError, ValueError) as error:
                reason = str(error)
            else:
                return
        self._give_up(reason)

    def _post(self, body: bytes) -> None:
        headers = {"Content-Type": "application/json", "User-Agent": "perdure"}
        if self._secret:
            headers["X-Perdure-Signature"] = signature(self._secret, body, int(time.time()))
        request = urllib.request.Request(self._url, body, headers)  # noqa: S310 - checked: http(s)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S):  # noqa: S310 - likewise
            pass

    def _give_up(self, reason: str) -> None:
        self.lost += 1
        log.warning("alarms.webhook_failed", reason=reason, lost=self.lost)
