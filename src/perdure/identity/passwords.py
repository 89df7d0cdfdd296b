"""Passwords of people: argon2id, a few at a time, beside the loop.

A check takes tens of milliseconds and tens of megabytes by design, so that there are few threads
for it and a short queue before them; one that finds the queue full is refused, not made to wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar, final

from perdure.admin.problems import Refused
from perdure.errors import ConfigError

T = TypeVar("T")

TIME_COST: Final = 2
MEMORY_KIB: Final = 19 * 1024
LANES: Final = 1
"""OWASP's first choice for argon2id (2 passes, 19 MiB, 1 lane); RFC 9106 has the function."""

THREADS: Final = 2
QUEUE_MAX: Final = 16
"""Checks under way and waiting; together they take no more than THREADS * MEMORY_KIB."""


def hash_password(password: str) -> str:
    """The text to keep of a password; slow."""
    text: str = _hasher().hash(_spelled(password))
    return text


def fits(text: str, password: str) -> bool:
    """Whether a password is the one that a text was made of; slow."""
    exceptions = importlib.import_module("argon2.exceptions")
    # As it was typed too: what earlier releases have kept was made of that.
    for spelling in dict.fromkeys((_spelled(password), password)):
        with contextlib.suppress(exceptions.VerificationError, exceptions.InvalidHashError):
            return bool(_hasher().verify(text, spelling))
    return False


def _spelled(password: str) -> str:
    """One spelling for what keyboards send as one or as several code points (RFC 8265, 4.2.2)."""
    return unicodedata.normalize("NFC", password)


def is_dated(text: str) -> bool:
    """Whether it was made with other costs than would be taken today."""
    return bool(_hasher().check_needs_rehash(text))


def _hasher() -> Any:
    try:
        argon2 = importlib.import_module("argon2")
    except ImportError as error:
        raise ConfigError(
            "passwords of users need argon2-cffi", path="http", hint="pip install 'perdure[http]'"
        ) from error
    return argon2.PasswordHasher(time_cost=TIME_COST, memory_cost=MEMORY_KIB, parallelism=LANES)


@final
class PasswordPool:
    """Runs what is slow in a few threads.

    Args:
        threads: of the pool.
        queue_max: calls under way and waiting.
    """

    def __init__(self, *, threads: int = THREADS, queue_max: int = QUEUE_MAX) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="passwords")
        self._queue_max = queue_max
        self._count = 0

    async def run(self, work: Callable[[], T]) -> T:
        """The result of a call.

        Raises:
            Refused: too many are waiting.
        """
        if self._count >= self._queue_max:
            raise Refused("busy", "too many logins at once", hint="try again in a moment")
        self._count += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._count -= 1

    def close(self) -> None:
        """Let the threads go."""
        self._threads.shutdown(wait=False, cancel_futures=True)
