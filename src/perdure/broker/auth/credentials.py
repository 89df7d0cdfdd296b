"""The credentials file: users and the hashes of their secrets, one ``user:hash`` to a line.

::

    # comment
    ada:$scrypt$ln=14,r=8,p=5$…$…
    ada:$scram-sha-256$4096$…$…$…
    pump-7:$token-sha256$…
    legacy:$7$101$…$…

A user may have one hash of each password kind and several tokens, so that a token can be
replaced without a gap. A file made by ``mosquitto_passwd`` is a credentials file.

It must not know connections, threads or randomness (salts and tokens are arguments).

Invariant: on disk there is either the old file or the new one, never a part of one, and nobody
but its owner may read what we write.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

from perdure.broker.auth.hashes import (
    SCRAM_ITERATIONS,
    Hash,
    Scheme,
    ScramKeys,
    SlowHash,
    TokenHash,
    make_hash,
    parse_hash,
)
from perdure.broker.auth.private_file import Identity, read_file, save_file, state_of
from perdure.errors import ConfigError

CREDENTIALS_FILE_BYTES_MAX: Final = 256 * 1024 * 1024
"""About 1.5 million users; the file is read as a whole."""

TOKENS_PER_USER_MAX: Final = 8
"""An old and a new one, and some to spare; each is compared at every CONNECT."""

TOKEN_BYTES_MIN: Final = 32
"""Generated tokens have 256 bits or more: only then may their hash be a quick one."""


DECOYS_MAX: Final = 4
"""Costs that a wrong password pays for; a file whose passwords were set over years has a few."""


@final
@dataclass(slots=True)
class _Line:
    """A line as it stands in the file; ``entry`` is None for comments and empty lines."""

    text: str
    user: str = ""
    entry: Hash | None = None


@final
@dataclass(slots=True)
class _User:
    """What is known of a user, sorted by how it is checked."""

    tokens: list[TokenHash] = field(default_factory=list)
    hashes: list[SlowHash] = field(default_factory=list)


@final
class CredentialsFile:
    """Users and their hashes, in the order and with the comments of the file.

    Args:
        path: where ``save`` writes; nothing is read here, see ``load``.
    """

    __slots__ = ("_lines", "_read_state", "_users", "path")

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._lines: list[_Line] = []
        self._users: dict[str, _User] = {}
        self._read_state: Identity | None = None

    @classmethod
    def load(cls, path: Path | str, *, missing_ok: bool = False) -> CredentialsFile:
        """Read a file.

        Args:
            path: the file.
            missing_ok: no file is an empty file (``perdure passwd`` makes it).

        Raises:
            ConfigError: it cannot be read, or a line is wrong (``file:line`` in the text).
        """
        credentials = cls(path)
        try:
            data, credentials._read_state = read_file(
                credentials.path, name="credentials file", bytes_max=CREDENTIALS_FILE_BYTES_MAX
            )
        except FileNotFoundError:
            if missing_ok:
                return credentials
            raise ConfigError(
                f"credentials file {path} does not exist",
                hint="make it with `perdure passwd`",
            ) from None
        credentials._parse(data)
        return credentials

    def is_current(self) -> bool:
        """Whether the file is still as it was read or saved; blocks.

        Raises:
            ConfigError: nobody can tell.
        """
        return state_of(self.path) == self._read_state

    @property
    def users(self) -> tuple[str, ...]:
        """User names, in the order of the file."""
        return tuple(self._users)

    def __contains__(self, user: object) -> bool:
        return user in self._users

    def __len__(self) -> int:
        return len(self._users)

    def entries(self, user: str) -> tuple[Hash, ...]:
        """All entries of a user; empty when there is no such user."""
        known = self._users.get(user)
        return (*known.hashes, *known.tokens) if known else ()

    def hashes(self, user: str) -> Sequence[SlowHash]:
        """Entries that take time to check."""
        known = self._users.get(user)
        return known.hashes if known else ()

    def tokens(self, user: str) -> Sequence[TokenHash]:
        """Entries that take none."""
        known = self._users.get(user)
        return known.tokens if known else ()

    def scram_keys(self, user: str) -> ScramKeys | None:
        """The user's SCRAM entry."""
        for entry in self.hashes(user):
            if isinstance(entry, ScramKeys):
                return entry
        return None

    def has_scram(self) -> bool:
        """Whether any user can log in by SCRAM."""
        return any(self.scram_keys(user) is not None for user in self._users)

    def scram_iterations(self) -> int:
        """Iterations of most SCRAM entries: what to tell a client whose user is unknown."""
        counts: Counter[int] = Counter()
        for user in self._users:
            if (keys := self.scram_keys(user)) is not None:
                counts[keys.iterations] += 1
        return counts.most_common(1)[0][0] if counts else SCRAM_ITERATIONS

    def decoys(self) -> tuple[SlowHash, ...]:
        """An entry for each cost that the file has, the most common ones; empty = all are quick.

        Who has no entry of a cost is checked against that one, and the outcome ignored: so every
        wrong password takes the same time, whether the user is known and whatever its entries
        are.
        """
        costs: Counter[tuple[object, ...]] = Counter()
        samples: dict[tuple[object, ...], SlowHash] = {}
        for known in self._users.values():
            for entry in known.hashes:
                cost = entry_cost(entry)
                costs[cost] += 1
                samples.setdefault(cost, entry)
        return tuple(samples[cost] for cost, _ in costs.most_common(DECOYS_MAX))

    def set_password(
        self, user: str, password: str, *, salt: bytes, schemes: Sequence[Scheme] = ("scrypt",)
    ) -> None:
        """Add a user or replace the user's password; tokens are kept.

        All former password entries go, whatever their kind: none may outlive a change.

        Args:
            user: user name.
            password: the new password.
            salt: at least 16 random bytes, used for nothing else.
            schemes: kinds of entries to make.

        Raises:
            ConfigError: the name or the password cannot be used.
        """
        self._check_name(user)
        if not password:
            raise ConfigError("the password is empty")
        if len(salt) < 16:
            raise ValueError("a salt has at least 16 bytes")
        try:
            entries = [make_hash(scheme, password, salt=salt) for scheme in dict.fromkeys(schemes)]
        except ValueError as error:
            raise ConfigError(f"the password cannot be used with SCRAM: {error}") from None
        kept = self._users.get(user)
        self._replace(user, [*entries, *(kept.tokens if kept else ())])

    def add_token(self, user: str, token: str) -> None:
        """Add a generated token to a user, who need not exist; the older ones stay valid.

        Raises:
            ConfigError: the name cannot be used, or the user has too many tokens.
            ValueError: the token is too short to have been generated as required.
        """
        self._check_name(user)
        if len(token) < TOKEN_BYTES_MIN:
            raise ValueError(f"a token has at least {TOKEN_BYTES_MIN} characters")
        entry = TokenHash(hashlib.sha256(token.encode()).digest())
        present = self.entries(user)
        if entry in present:
            return
        if len(self.tokens(user)) >= TOKENS_PER_USER_MAX:
            raise ConfigError(
                f"user {user!r} has {TOKENS_PER_USER_MAX} tokens",
                hint="delete the old ones first",
            )
        self._replace(user, [*present, entry])

    def delete_tokens(self, user: str) -> int:
        """Withdraw all tokens of a user; returns how many. A user left with nothing is gone."""
        known = self._users.get(user)
        if known is None or not known.tokens:
            return 0
        count = len(known.tokens)
        self._replace(user, list(known.hashes))
        return count

    def delete(self, user: str) -> bool:
        """Remove a user; returns whether there was one."""
        if user not in self._users:
            return False
        self._replace(user, [])
        return True

    def save(self) -> None:
        """Replace the file in one step, readable by its owner alone.

        Raises:
            ConfigError: it cannot be written, or someone else has changed it since ``load``.
        """
        text = "".join(f"{line.text}\n" for line in self._lines)
        self._read_state = save_file(self.path, text.encode(), read=self._read_state)

    def _parse(self, data: bytes) -> None:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            number = data.count(b"\n", 0, error.start) + 1
            raise ConfigError(f"{self.path}:{number}: not UTF-8") from None
        lines = text.split("\n")
        if lines[-1] == "":
            lines.pop()
        for number, raw in enumerate(lines, start=1):
            line = raw.rstrip("\r")
            if not line.strip() or line.startswith("#"):
                self._lines.append(_Line(line))
                continue
            user, colon, encoded = line.partition(":")
            try:
                if not user or not colon:
                    raise ValueError("a line is 'user:hash'")
                entry = parse_hash(encoded.rstrip())
                self._admit(user, entry)
            except ValueError as error:
                hint = "`perdure passwd` writes such lines; # begins a comment"
                raise ConfigError(f"{self.path}:{number}: {error}", hint=hint) from None
            self._lines.append(_Line(line, user, entry))

    def _admit(self, user: str, entry: Hash) -> None:
        """Add an entry to the index, unless the user may not have it too."""
        known = self._users.get(user)
        if known is None:
            known = self._users[user] = _User()
        if isinstance(entry, TokenHash):
            if len(known.tokens) >= TOKENS_PER_USER_MAX:
                raise ValueError(f"user {user!r} has more than {TOKENS_PER_USER_MAX} tokens")
            known.tokens.append(entry)
            return
        # Two entries of a kind are two passwords, and the older one is one that was replaced.
        if any(type(other) is type(entry) for other in known.hashes):
            raise ValueError(f"user {user!r} has two hashes of one kind")
        known.hashes.append(entry)

    def _replace(self, user: str, entries: Sequence[Hash]) -> None:
        """Put the user's new lines where its first one was, or at the end."""
        new = [_Line(f"{user}:{entry.encode()}", user, entry) for entry in entries]
        lines: list[_Line] = []
        placed = False
        for line in self._lines:
            if line.entry is None or line.user != user:
                lines.append(line)
            elif not placed:
                lines.extend(new)
                placed = True
        if not placed:
            lines.extend(new)
        self._lines = lines
        self._users.pop(user, None)
        for entry in entries:
            self._admit(user, entry)

    def _check_name(self, user: str) -> None:
        if not user or user.startswith("#") or ":" in user or not user.isprintable():
            raise ConfigError(
                f"user name {user!r} cannot be kept in a credentials file",
                hint="it must be printable, not begin with # and hold no colon",
            )


def entry_cost(entry: SlowHash) -> tuple[object, ...]:
    """What the time of a check depends on: the kind of entry and its parameters."""
    parameters = {
        name: value
        for name in ("log2_n", "r", "p", "iterations", "memory_kib", "variant")
        if (value := getattr(entry, name, None)) is not None
    }
    return (type(entry).__name__, *parameters.items())
