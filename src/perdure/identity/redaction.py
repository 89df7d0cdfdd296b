"""What is written down of a value: no secrets, and not more than is needed to see what changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

SECRET_NAMES: Final = ("password", "secret", "token", "hash", "private_key", "digest")
"""A member whose name contains one of them is not written down."""

REDACTED: Final = "(redacted)"
TEXT_CHARS_MAX: Final = 1_000
"""Longer texts are cut; payloads and structures belong elsewhere."""

MEMBERS_MAX: Final = 64
DEPTH_MAX: Final = 6


def redacted(value: Any, depth: int = 0) -> Any:
    """A value of JSON without secrets, and bounded."""
    if depth > DEPTH_MAX:
        return "..."
    if isinstance(value, Mapping):
        return {
            str(name): REDACTED if _is_secret(str(name), each) else redacted(each, depth + 1)
            for name, each in list(value.items())[:MEMBERS_MAX]
        }
    if isinstance(value, list | tuple):
        return [redacted(each, depth + 1) for each in value[:MEMBERS_MAX]]
    if isinstance(value, str) and len(value) > TEXT_CHARS_MAX:
        return value[:TEXT_CHARS_MAX] + "..."
    return value


def _is_secret(name: str, value: object) -> bool:
    """Whether a member is left out; numbers, yes and no tell nothing."""
    if value is None or isinstance(value, bool | int):
        return False
    return any(each in name.lower() for each in SECRET_NAMES)
