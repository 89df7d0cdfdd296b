"""Users and keys with the names and forms of the API."""

from __future__ import annotations

from typing import Any

from perdure.admin.revisions import revision_of
from perdure.config.units import format_time
from perdure.identity.records import ApiKey, User


def user_fields(user: User) -> dict[str, Any]:
    """Members of ``admin.records.identity.UserRow``."""
    return {
        "name": user.name,
        "role": user.role,
        "created_at": format_time(user.created_at_us),
        "created_at_us": user.created_at_us,
        "changed_at": format_time(user.changed_at_us),
        "changed_at_us": user.changed_at_us,
        "last_login_at": format_time(user.last_login_at_us),
        "last_login_at_us": user.last_login_at_us or None,
        "revision": user_revision(user),
    }


def user_revision(user: User) -> str:
    """Changes with what administrators change of a user."""
    return revision_of(user.name, user.role, user.created_at_us, user.changed_at_us)


def key_fields(key: ApiKey) -> dict[str, Any]:
    """Members of ``admin.records.identity.KeyRow``."""
    return {
        "id": key.id,
        "name": key.name,
        "role": key.role,
        "scopes": list(key.scopes),
        "topic_filters": list(key.topic_filters),
        "created_at": format_time(key.created_at_us),
        "created_at_us": key.created_at_us,
        "created_by": key.created_by,
        "expires_at": format_time(key.expires_at_us),
        "expires_at_us": key.expires_at_us or None,
        "last_used_at": format_time(key.last_used_at_us),
        "last_used_at_us": key.last_used_at_us or None,
    }
