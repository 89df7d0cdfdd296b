"""Users and API keys as values, and what their parts may be."""

from __future__ import annotations

import re
from typing import Final, final, get_args

import msgspec

from perdure.admin.problems import Refused
from perdure.admin.rights import EVERYTHING, Role
from perdure.admin.table import OPERATIONS
from perdure.errors import MqttError
from perdure.topic.names import validate_topic_filter

NAME_CHARS_MAX: Final = 64
PASSWORD_CHARS_MIN: Final = 10
PASSWORD_BYTES_MAX: Final = 1_024
FILTERS_MAX: Final = 32
LEVELS_MAX: Final = 128
ROLES: Final[tuple[Role, ...]] = get_args(Role)
"""Each may what those before it may."""

USERS_MAX: Final = 10_000
KEYS_MAX: Final = 10_000

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]*")


@final
class User(msgspec.Struct, frozen=True):
    """A person who may log in.

    Attributes:
        name: unique, compared as written.
        role: what they may do.
        created_at_us: wall time.
        changed_at_us: wall time of the last change of role or password.
        last_login_at_us: wall time; 0 = never.
        generation: grows when all logins are to end.
    """

    name: str
    role: Role
    created_at_us: int
    changed_at_us: int
    last_login_at_us: int = 0
    generation: int = 0


@final
class ApiKey(msgspec.Struct, frozen=True):
    """A program's way in.

    Attributes:
        id: its public half.
        name: what it is for, in words.
        role: what it may do at most.
        scopes: operations or resources that it may have below that; empty = all.
        topic_filters: topics that it may read and publish; empty = all.
        created_at_us: wall time.
        created_by: who made it.
        expires_at_us: wall time from which on it does not hold; 0 = never.
        last_used_at_us: wall time, within a minute; 0 = never.
    """

    id: str
    name: str
    role: Role
    scopes: tuple[str, ...]
    topic_filters: tuple[str, ...]
    created_at_us: int
    created_by: str
    expires_at_us: int = 0
    last_used_at_us: int = 0


def check_name(name: str, *, what: str = "user name") -> str:
    """Return a name that can be taken.

    Raises:
        Refused: it cannot.
    """
    if len(name) > NAME_CHARS_MAX or not _NAME.fullmatch(name):
        raise Refused(
            "bad_request",
            f"a {what} has 1 to {NAME_CHARS_MAX} letters, digits and . _ @ + -, "
            "and begins with a letter or digit",
        )
    return name


def check_role(role: str) -> Role:
    """Return a role.

    Raises:
        Refused: there is none of this name.
    """
    for each in ROLES:
        if each == role:
            return each
    raise Refused("bad_request", f"there is no role {role!r}", hint=f"one of {', '.join(ROLES)}")


def check_password(password: str, *, name: str) -> str:
    """Return a password that can be taken.

    Raises:
        Refused: it is too short or too long, or is the name.
    """
    if len(password) < PASSWORD_CHARS_MIN:
        raise Refused("bad_request", f"a password has {PASSWORD_CHARS_MIN} characters or more")
    if len(password.encode()) > PASSWORD_BYTES_MAX:
        raise Refused("bad_request", f"a password has at most {PASSWORD_BYTES_MAX} bytes")
    if password.casefold() == name.casefold() or len(set(password)) == 1:
        raise Refused(
            "bad_request", "a password is not the user's name, nor one character repeated"
        )
    return password


def check_filters(topic_filters: tuple[str, ...]) -> tuple[str, ...]:
    """Return topic filters of a key.

    Raises:
        Refused: there are too many, or one is none.
    """
    if len(topic_filters) > FILTERS_MAX:
        raise Refused("bad_request", f"a key has at most {FILTERS_MAX} topic filters")
    for each in topic_filters:
        try:
            validate_topic_filter(each, levels_max=LEVELS_MAX)
        except MqttError as error:
            raise Refused("bad_request", f"{each!r} is no topic filter: {error.message}") from None
    return topic_filters


def check_scopes(scopes: tuple[str, ...]) -> tuple[str, ...]:
    """Return scopes of a key: operations, resources or ``*``.

    Raises:
        Refused: there are too many, or one names nothing.
    """
    known = {EVERYTHING, *OPERATIONS, *(each.resource for each in OPERATIONS.values())}
    for each in scopes:
        if each not in known:
            raise Refused(
                "bad_request",
                f"there is no operation or resource {each!r:.100}",
                hint="such as sessions, sessions.list or messages",
            )
    return scopes
