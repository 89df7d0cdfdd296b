"""Users: added, changed, removed; their passwords come hashed (``passwords``)."""

from __future__ import annotations

import sqlite3
from typing import Final, final

from perdure.admin.problems import Refused
from perdure.admin.revisions import check_revision
from perdure.identity.ledger import Actor, Ledger
from perdure.identity.records import USERS_MAX, User, check_name, check_role
from perdure.identity.rows import user_revision

_COLUMNS: Final = "name, role, created_at_us, changed_at_us, last_login_at_us, generation"


@final
class Users:
    """The users of one file. Methods block.

    Args:
        ledger: the file, and the record of changes.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def all(self) -> list[User]:
        """Everybody, by name."""
        with self._ledger.file.look() as rows:
            found = rows.execute(f"SELECT {_COLUMNS} FROM users ORDER BY name").fetchall()  # noqa: S608
        return [User(*each) for each in found]

    def find(self, name: str) -> User | None:
        """One, if there is such a user."""
        with self._ledger.file.look() as rows:
            return _find(rows, name)

    def password_of(self, name: str) -> str:
        """The text that a password is checked against; empty = there is no such user."""
        with self._ledger.file.look() as rows:
            found = rows.execute("SELECT password FROM users WHERE name = ?", (name,)).fetchone()
        return found[0] if found else ""

    def is_empty(self) -> bool:
        """Whether nobody could log in."""
        with self._ledger.file.look() as rows:
            return rows.execute("SELECT 1 FROM users LIMIT 1").fetchone() is None

    def add(self, name: str, role: str, password_text: str, actor: Actor) -> User:
        """Add somebody.

        Args:
            name: see ``records.check_name``.
            role: one of ``ROLES``.
            password_text: of ``passwords.hash_password``.
            actor: who does it.

        Raises:
            Refused: a part cannot be taken.
            Refused: there is one of this name, or too many.
        """
        now_us = self._ledger.clock.now_us()
        user = User(check_name(name), check_role(role), now_us, now_us)
        with self._ledger.file.change() as rows:
            insert(rows, user, password_text)
            self._ledger.record(actor, "users.add", name, after={"role": user.role})
        return user

    def set_role(self, name: str, role: str, actor: Actor, *, revision: str = "") -> User:
        """Give another role, which holds for open logins too.

        Args:
            name: whose.
            role: one of ``ROLES``.
            actor: who does it.
            revision: that was read; empty = whatever it is now.

        Raises:
            Refused: there is no such role or user.
            Refused: no administrator would be left.
        """
        wanted = check_role(role)
        now_us = self._ledger.clock.now_us()
        with self._ledger.file.change() as rows:
            before = _need(rows, name, revision)
            if before.role == "admin" and wanted != "admin":
                _check_last(rows, name)
            rows.execute(
                "UPDATE users SET role = ?, changed_at_us = ? WHERE name = ?",
                (wanted, now_us, name),
            )
            self._ledger.record(
                actor, "users.set_role", name, before={"role": before.role}, after={"role": wanted}
            )
            return _need(rows, name)

    def set_password(
        self, name: str, password_text: str, actor: Actor, *, revision: str = ""
    ) -> User:
        """Give another password; all logins of the user end.

        Args:
            name: whose.
            password_text: of ``passwords.hash_password``.
            actor: who does it.
            revision: that was read; empty = whatever it is now.

        Raises:
            Refused: there is no such user.
        """
        now_us = self._ledger.clock.now_us()
        with self._ledger.file.change() as rows:
            _need(rows, name, revision)
            rows.execute(
                "UPDATE users SET password = ?, changed_at_us = ?, generation = generation + 1 "
                "WHERE name = ?",
                (password_text, now_us, name),
            )
            self._ledger.record(actor, "users.set_password", name)
            return _need(rows, name)

    def end_logins(self, name: str, actor: Actor) -> User:
        """Log somebody out everywhere.

        Raises:
            Refused: there is no such user.
        """
        with self._ledger.file.change() as rows:
            _need(rows, name)
            rows.execute("UPDATE users SET generation = generation + 1 WHERE name = ?", (name,))
            self._ledger.record(actor, "users.logout", name)
            return _need(rows, name)

    def remove(self, name: str, actor: Actor, *, revision: str = "") -> None:
        """Remove somebody, whose logins end.

        Raises:
            Refused: there is no such user.
            Refused: no administrator would be left.
        """
        with self._ledger.file.change() as rows:
            before = _need(rows, name, revision)
            if before.role == "admin":
                _check_last(rows, name)
            rows.execute("DELETE FROM users WHERE name = ?", (name,))
            self._ledger.record(actor, "users.remove", name, before={"role": before.role})

    def logged_in(self, name: str, actor: Actor, *, password_text: str = "") -> None:
        """Note a login; with a text, the password's hash is replaced by it."""
        now_us = self._ledger.clock.now_us()
        with self._ledger.file.change() as rows:
            rows.execute("UPDATE users SET last_login_at_us = ? WHERE name = ?", (now_us, name))
            if password_text:
                rows.execute("UPDATE users SET password = ? WHERE name = ?", (password_text, name))
            self._ledger.record(actor, "users.login", name)


def insert(rows: sqlite3.Connection, user: User, password_text: str) -> None:
    """Add a user, within a transaction.

    Raises:
        Refused: there is one of this name, or too many.
    """
    if _find(rows, user.name) is not None:
        raise Refused("conflict", f"there is a user {user.name!r} already")
    (count,) = rows.execute("SELECT count(*) FROM users").fetchone()
    if count >= USERS_MAX:
        raise Refused("conflict", f"there are {USERS_MAX} users, and no more are possible")
    rows.execute(
        "INSERT INTO users VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            user.name,
            user.role,
            password_text,
            user.created_at_us,
            user.changed_at_us,
            user.last_login_at_us,
            # Grown from the time, so that logins of a removed user of the same name stay void.
            user.created_at_us,
        ),
    )


def _find(rows: sqlite3.Connection, name: str) -> User | None:
    found = rows.execute(f"SELECT {_COLUMNS} FROM users WHERE name = ?", (name,)).fetchone()  # noqa: S608
    return User(*found) if found else None


def _need(rows: sqlite3.Connection, name: str, revision: str = "") -> User:
    user = _find(rows, name)
    if user is None:
        raise Refused("not_found", f"there is no user {name!r}")
    check_revision(revision, user_revision(user), f"the user {name!r}")
    return user


def _check_last(rows: sqlite3.Connection, name: str) -> None:
    (others,) = rows.execute(
        "SELECT count(*) FROM users WHERE role = 'admin' AND name <> ?", (name,)
    ).fetchone()
    if not others:
        raise Refused(
            "conflict", f"{name!r} is the last administrator", hint="make another one first"
        )
