"""API keys: made, found by their secret, revoked.

A key is ``pk_ID_SECRET``: the identifier finds the row, the secret is compared by its SHA-256.
"""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any, Final, final

from perdure.admin.problems import Refused
from perdure.identity.ledger import Actor, Ledger, digest
from perdure.identity.records import KEYS_MAX, ApiKey, check_filters, check_role, check_scopes

PREFIX: Final = "pk"
ID_BYTES: Final = 5
SECRET_BYTES: Final = 30
NAME_CHARS_MAX: Final = 100
USE_NOTED_US: Final = 60_000_000
"""How fine the time of the last use is."""

_COLUMNS: Final = (
    "id, name, role, scopes, filters, created_at_us, created_by, expires_at_us, last_used_at_us"
)


@final
class Keys:
    """The keys of one file. Methods block.

    Args:
        ledger: the file, and the record of changes.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def all(self) -> list[ApiKey]:
        """All keys, the newest first; those that have expired too."""
        with self._ledger.file.look() as rows:
            found = rows.execute(
                f"SELECT {_COLUMNS} FROM api_keys ORDER BY created_at_us DESC, id"  # noqa: S608
            ).fetchall()
        return [_key(each) for each in found]

    def add(
        self,
        name: str,
        role: str,
        actor: Actor,
        *,
        scopes: tuple[str, ...] = (),
        topic_filters: tuple[str, ...] = (),
        expires_at_us: int = 0,
    ) -> tuple[ApiKey, str]:
        """Make a key.

        Args:
            name: what it is for.
            role: one of ``ROLES``.
            actor: who does it.
            scopes: operations or resources; empty = all that the role may.
            topic_filters: topics that it may read and publish; empty = all.
            expires_at_us: wall time; 0 = never.

        Returns:
            The key, and what is presented: it is told this once.

        Raises:
            Refused: a part cannot be taken.
            Refused: there are too many.
        """
        now_us = self._ledger.clock.now_us()
        if not name.strip() or len(name) > NAME_CHARS_MAX or not name.isprintable():
            raise Refused("bad_request", f"a key has a name of 1 to {NAME_CHARS_MAX} characters")
        if expires_at_us and expires_at_us <= now_us:
            raise Refused("bad_request", "the key would have expired already")
        key = ApiKey(
            self._ledger.random_bytes(ID_BYTES).hex(),
            name,
            check_role(role),
            check_scopes(scopes),
            check_filters(topic_filters),
            now_us,
            actor.principal.name,
            expires_at_us,
        )
        secret = base64.urlsafe_b64encode(self._ledger.random_bytes(SECRET_BYTES)).decode()
        with self._ledger.file.change() as rows:
            (count,) = rows.execute("SELECT count(*) FROM api_keys").fetchone()
            if count >= KEYS_MAX:
                raise Refused("conflict", f"there are {KEYS_MAX} keys, and no more are possible")
            rows.execute(
                "INSERT INTO api_keys VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0)",
                (
                    key.id,
                    digest(secret),
                    key.name,
                    key.role,
                    json.dumps(key.scopes),
                    json.dumps(key.topic_filters),
                    key.created_at_us,
                    key.created_by,
                    key.expires_at_us,
                ),
            )
            self._ledger.record(actor, "api_keys.add", key.id, after=key)
        return key, f"{PREFIX}_{key.id}_{secret}"

    def find(self, presented: str) -> ApiKey | None:
        """The key that was presented, if it holds; its use is noted now and then."""
        prefix, _, rest = presented.partition("_")
        key_id, _, secret = rest.partition("_")
        if prefix != PREFIX or not secret:
            return None
        now_us = self._ledger.clock.now_us()
        with self._ledger.file.look() as rows:
            found = rows.execute(
                f"SELECT {_COLUMNS}, digest FROM api_keys WHERE id = ?",  # noqa: S608
                (key_id,),
            ).fetchone()
        if found is None or not hmac.compare_digest(found[-1], digest(secret)):
            return None
        key = _key(found[:-1])
        if key.expires_at_us and key.expires_at_us <= now_us:
            return None
        if now_us - key.last_used_at_us > USE_NOTED_US:
            with self._ledger.file.change() as rows:
                rows.execute(
                    "UPDATE api_keys SET last_used_at_us = ? WHERE id = ?", (now_us, key_id)
                )
        return key

    def holds(self, key_id: str) -> ApiKey | None:
        """A key that was found before, if it still holds."""
        with self._ledger.file.look() as rows:
            found = rows.execute(
                f"SELECT {_COLUMNS} FROM api_keys WHERE id = ?",  # noqa: S608
                (key_id,),
            ).fetchone()
        key = _key(found) if found else None
        if key is None or 0 < key.expires_at_us <= self._ledger.clock.now_us():
            return None
        return key

    def revoke(self, key_id: str, actor: Actor) -> ApiKey:
        """Take a key back.

        Raises:
            Refused: there is no such key.
        """
        with self._ledger.file.change() as rows:
            found = rows.execute(
                f"SELECT {_COLUMNS} FROM api_keys WHERE id = ?",  # noqa: S608
                (key_id,),
            ).fetchone()
            if found is None:
                raise Refused("not_found", f"there is no API key {key_id!r}")
            key = _key(found)
            rows.execute("DELETE FROM api_keys WHERE id = ?", (key_id,))
            self._ledger.record(actor, "api_keys.revoke", key_id, before=key)
        return key


def _key(row: tuple[Any, ...]) -> ApiKey:
    key_id, name, role, scopes, filters, *rest = row
    return ApiKey(
        key_id,
        name,
        check_role(role),
        tuple(json.loads(scopes)),
        tuple(json.loads(filters)),
        *rest,
    )
