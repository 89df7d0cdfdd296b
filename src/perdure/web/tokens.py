"""Who may read: whoever has one of the tokens in a file.

Tokens are generated, long and compared by their hashes, so that the time which an answer takes
tells nothing of them. Invariant: a file that cannot be read lets nobody in.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path
from typing import Final, final

from perdure.errors import ConfigError

TOKEN_CHARS_MIN: Final = 32
TOKEN_BYTES: Final = 32
TOKENS_MAX: Final = 1_000


def read_tokens(path: Path, *, setting: str = "http.token_file") -> list[bytes]:
    """Hashes of the tokens in a file; lines that are empty or begin with ``#`` are not used.

    Args:
        path: of the file.
        setting: that names it.

    Raises:
        ConfigError: it cannot be read, holds no token, or one that is too short.
    """
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not ASCII"
        raise ConfigError(f"cannot read the tokens in {path}: {reason}", path=setting) from error
    found = []
    for number, line in enumerate(lines, start=1):
        token = line.strip()
        if not token or token.startswith("#"):
            continue
        if len(token) < TOKEN_CHARS_MIN or any(char.isspace() for char in token):
            raise ConfigError(
                f"{path}:{number}: a token has {TOKEN_CHARS_MIN} characters or more, and no space",
                path=setting,
                hint="openssl rand -hex 32 makes one",
            )
        found.append(_digest(token))
    if not 0 < len(found) <= TOKENS_MAX:
        raise ConfigError(
            f"{path} holds {len(found)} tokens; 1 to {TOKENS_MAX} are possible", path=setting
        )
    return found


def make_token_file(path: Path) -> None:
    """Make a file with one random token that only its owner may read.

    Raises:
        ConfigError: it cannot be written.
    """
    text = (
        f"# Whoever has this token may read the log over HTTP.\n{secrets.token_hex(TOKEN_BYTES)}\n"
    )
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ConfigError(
            f"cannot make {path}: {error.strerror or error}", path="http.token_file"
        ) from error


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


@final
class Tokens:
    """The tokens of a file, read again when it has changed.

    Args:
        path: of the file.
        setting: that names it.
    """

    def __init__(self, path: Path, *, setting: str = "http.token_file") -> None:
        self._path = path
        self._setting = setting
        self._stamp: tuple[int, int, int] | None = None
        self._digests: list[bytes] = []
        self.problem = ""

    def knows(self, authorization: str) -> bool:
        """Whether an ``Authorization`` header carries a token of the file."""
        self._refresh()
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return False
        digest = _digest(token.strip())
        # All of them are compared, whichever fits.
        return sum([hmac.compare_digest(digest, each) for each in self._digests]) > 0

    def _refresh(self) -> None:
        try:
            found = self._path.stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        except OSError:
            stamp = (0, 0, 0)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._digests, self.problem = read_tokens(self._path, setting=self._setting), ""
        except ConfigError as error:
            self._digests, self.problem = [], error.message
