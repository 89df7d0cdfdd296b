"""What two administrators edit at once: a revision of each record, which a change may name.

A revision is a digest of what can be changed, not of counters beside it, so that it stays the same
until somebody has changed the record.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from perdure.admin.problems import Refused

DIGEST_BYTES: Final = 8

ANY: Final = "*"
"""``If-Match: *``: whatever the record is, as long as there is one."""


def revision_of(*parts: Any) -> str:
    """The revision of a record.

    Args:
        parts: what of it can be changed; nobody can tell them from the revision.
    """
    return hashlib.blake2b(msgspec.json.encode(parts), digest_size=DIGEST_BYTES).hexdigest()


def check_revision(asked: str, now: str | None, what: str) -> None:
    """Refuse a change of a record that has changed since it was read.

    Args:
        asked: what the change names; empty = it is made whatever the record is.
        now: of the record; None = there is none.
        what: for the message.

    Raises:
        Refused: ``precondition_failed``.
    """
    if not asked or (asked == ANY and now is not None) or asked == now:
        return
    if now is None:
        raise Refused("precondition_failed", f"{what} is not there any more")
    raise Refused(
        "precondition_failed",
        f"{what} has changed since it was read",
        hint="read it again, and change that",
        details={"revision": now},
    )
