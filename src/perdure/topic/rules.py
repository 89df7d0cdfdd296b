"""Rules on topics: an access and a filter, with places for a client's names.

A rule is said as ``read public/#``, ``deny devices/%c/secret`` or ``lab/#`` alone, which is
``readwrite``. ``%c`` and ``%u``, each a whole level, stand for client identifier and user name.

Invariant: a name that a client chose is compared as one level and as nothing else. No wildcard,
slash or ``$`` in it widens what an administrator wrote.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, final

from perdure.errors import MqttError
from perdure.limits import UTF8_STRING_BYTES_MAX
from perdure.topic.names import SHARE_PREFIX, validate_topic_filter

BLANKS: Final = " \t\r"
"""What separates words. Other kinds of white space may be part of a topic or a name."""


class Permission(Enum):
    """The access word of a rule."""

    READ = "read"
    WRITE = "write"
    READWRITE = "readwrite"
    DENY = "deny"

    @property
    def reads(self) -> bool:
        """Whether it allows to be given messages."""
        return self in (Permission.READ, Permission.READWRITE)

    @property
    def writes(self) -> bool:
        """Whether it allows to publish."""
        return self in (Permission.WRITE, Permission.READWRITE)


@final
@dataclass(frozen=True, slots=True)
class Rule:
    """What one line says."""

    permission: Permission
    filter: str


def first_word(text: str) -> tuple[str, str]:
    """The first word, and what follows the blanks after it."""
    word = text.replace("\t", " ").partition(" ")[0]
    return word, text[len(word) :].strip(BLANKS)


def parse_rule(argument: str, *, is_pattern: bool) -> Rule:
    """Read a rule.

    A single word is a filter, even ``read``. With more words the first is the access, so a
    filter that holds a space needs one before it.

    Args:
        argument: what is said, without blanks around it.
        is_pattern: ``%c`` and ``%u`` stand for names.

    Raises:
        ValueError: it cannot be used.
    """
    word, rest = first_word(argument)
    if rest:
        try:
            permission = Permission(word)
        except ValueError:
            raise ValueError(f"unknown access {word!r}") from None
        topic_filter = rest
    else:
        permission = Permission.READWRITE
        topic_filter = word
    if topic_filter.startswith(SHARE_PREFIX):
        raise ValueError("a rule names the filter without '$share/group/'; it holds for both")
    try:
        validate_topic_filter(topic_filter, levels_max=UTF8_STRING_BYTES_MAX)
    except MqttError as error:
        raise ValueError(error.message) from None
    if is_pattern:
        for level in topic_filter.split("/"):
            if level not in ("%c", "%u") and ("%c" in level or "%u" in level):
                raise ValueError("%c and %u must be whole levels")
    return Rule(permission, topic_filter)


def fill(rule: Rule, *, client_id: str | None, username: str | None) -> str | None:
    """Put a client's names into a pattern.

    Args:
        rule: with ``%c`` and ``%u``, or without.
        client_id: None = there is none, as over HTTP.
        username: None = there is no proved one.

    Returns:
        The filter; None if the rule does not hold for this client.
    """
    levels = rule.filter.split("/")
    for index, level in enumerate(levels):
        if level not in ("%c", "%u"):
            continue
        name = client_id if level == "%c" else username
        if name is None:
            return None
        is_plain = bool(name) and not any(char in name for char in "+#/\0")
        if rule.permission is Permission.DENY:
            # A name that cannot be a level must not get its bearer around a deny line.
            levels[index] = name if is_plain else "+"
        elif is_plain and not (index == 0 and name.startswith("$")):
            levels[index] = name
        else:
            return None
    return "/".join(levels)
