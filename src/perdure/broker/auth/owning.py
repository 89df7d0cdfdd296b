"""To whom a session belongs, and who may have it. Pure.

A session belongs to the user that it was opened for: the proved name, or nobody's (anonymous
clients are one owner). What no user of this broker has opened, such as a session that was taken
over from another broker, belongs to whoever comes first.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from perdure.broker.auth.authorize import Identity

Binding: TypeAlias = Literal["user", "none"]

BINDING_USER: Final = "user"

_ANONYMOUS: Final = "anonymous"
_PROVED: Final = "password"


def may_hold(identity: Identity, *, username: str, method: str, binding: str) -> bool:
    """Whether a client may resume, discard or take over a session.

    Args:
        identity: the client, authenticated.
        username: to whom the session belongs; empty = anonymous.
        method: what proved that name; empty = the session has no owner yet.
        binding: ``auth.client_id_binding``.
    """
    if binding != BINDING_USER or not method or identity.superuser:
        return True
    return (identity.username or "") == username


def owner_after(identity: Identity, *, username: str, method: str) -> tuple[str, str]:
    """To whom a session belongs once a client has it: name and method.

    A superuser who looks into somebody's session does not become its owner, or the honest one
    could not come back.

    Args:
        identity: the client.
        username: of the owner before; empty = anonymous.
        method: of the owner before; empty = there was none.
    """
    if method and identity.superuser:
        return username, method
    return identity.username or "", identity.method or _ANONYMOUS


def given_to(username: str, *, method: str) -> tuple[str, str]:
    """To whom a session belongs that an administrator gives to a user: name and method.

    The method is what proves the name as far as anybody knows; the owner's next CONNECT says it.

    Args:
        username: of the owner from now on; empty = anonymous.
        method: of the owner before; empty = there was none.
    """
    if not username:
        return "", _ANONYMOUS
    return username, method if method not in {"", _ANONYMOUS} else _PROVED
