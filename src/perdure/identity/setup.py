"""The first administrator: made by whoever has the link that the first start prints.

There is no password that everybody knows, not for a minute. A link holds once and not for long,
only its digest is kept, and it is worth nothing once there is a user. A start prints one of its own
and leaves those before it: who has that of ``perdure init`` opens it after the start.
"""

from __future__ import annotations

import hmac
import sqlite3
from pathlib import Path
from typing import Final, final

from perdure.admin.problems import Refused
from perdure.clock import SystemClock
from perdure.identity.file import IdentityFile
from perdure.identity.ledger import Actor, Ledger, digest
from perdure.identity.records import User, check_name
from perdure.identity.users import insert

TOKEN_BYTES: Final = 24
HOLDS_US: Final = 3_600_000_000
"""An hour."""

LINKS_MAX: Final = 8
"""That hold at once; a broker that cannot stay up starts often."""


@final
class Setup:
    """The setup token of one file. Methods block.

    Args:
        ledger: the file, and the record of changes.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def offer(self, *, beside: bool = False) -> str:
        """A new setup token; empty = there are users already.

        Args:
            beside: those before hold on; else it takes their place.
        """
        token = self._ledger.random_bytes(TOKEN_BYTES).hex()
        until_us = self._ledger.clock.now_us() + HOLDS_US
        kept = LINKS_MAX - 1 if beside else 0
        with self._ledger.file.change() as rows:
            if rows.execute("SELECT 1 FROM users LIMIT 1").fetchone() is not None:
                return ""
            rows.execute(
                "DELETE FROM setup WHERE digest NOT IN"
                " (SELECT digest FROM setup ORDER BY expires_at_us DESC LIMIT ?)",
                (kept,),
            )
            rows.execute("INSERT INTO setup VALUES (?, ?)", (digest(token), until_us))
        return token

    def holds(self, token: str) -> bool:
        """Whether a token could be redeemed now."""
        with self._ledger.file.look() as rows:
            if rows.execute("SELECT 1 FROM users LIMIT 1").fetchone() is not None:
                return False
            return self._is_offered(rows, token)

    def _is_offered(self, rows: sqlite3.Connection, token: str) -> bool:
        found = rows.execute(
            "SELECT digest FROM setup WHERE expires_at_us > ?", (self._ledger.clock.now_us(),)
        ).fetchall()
        presented = digest(token)
        return any(hmac.compare_digest(offered, presented) for (offered,) in found)

    def redeem(self, token: str, name: str, password_text: str, actor: Actor) -> User:
        """Make the first administrator, who is logged in with it; all tokens are used up.

        Raises:
            Refused: the name cannot be taken, there are users already, or the token does not hold.
        """
        now_us = self._ledger.clock.now_us()
        user = User(check_name(name), "admin", now_us, now_us, last_login_at_us=now_us)
        with self._ledger.file.change() as rows:
            if rows.execute("SELECT 1 FROM users LIMIT 1").fetchone() is not None:
                raise used_link()
            if not self._is_offered(rows, token):
                raise void_link()
            rows.execute("DELETE FROM setup")
            insert(rows, user, password_text)
            self._ledger.record(actor, "users.add", name, after={"role": "admin"})
            self._ledger.record(actor, "users.login", name)
        return user


def used_link() -> Refused:
    """A link that is opened, or sent off, once more."""
    return Refused("conflict", "there is an administrator already", hint="log in at /ui/login")


def void_link() -> Refused:
    """A link that is too old, replaced by another one, or invented."""
    return Refused(
        "unauthorized",
        "this setup link does not hold",
        hint="`perdure users setup-link` makes another one",
    )


def offer_setup(directory: Path) -> str:
    """A setup token more for a data directory; empty = there are users already. Blocks.

    Raises:
        StorageError: the file cannot be used.
    """
    with IdentityFile(directory) as file:
        return Setup(Ledger(file, SystemClock())).offer(beside=True)
