"""What a login grants: rules that come with it rather than from the ACL file.

A token, a service or a database says them in one of two forms, in the ACL file's own words::

    ["read public/#", "write devices/%c/data", "deny secret/#"]
    {"pub": ["devices/%c/data"], "sub": ["public/#"], "all": [], "deny": ["secret/#"]}

They are joined to the lines of the ACL file that are about the client: what one of them allows is
allowed, and ``deny`` beats all, wherever it stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, final

from perdure.topic.rules import Permission, Rule, parse_rule

GRANT_RULES_MAX: Final = 1000
"""Rules of one login, unless a method says otherwise: each topic is compared with all of them."""

_LISTS: Final[Mapping[str, Permission]] = {
    "pub": Permission.WRITE,
    "sub": Permission.READ,
    "all": Permission.READWRITE,
    "deny": Permission.DENY,
}


@final
@dataclass(frozen=True, slots=True)
class Grant:
    """Rules of one login.

    Attributes:
        rules: with ``%c`` and ``%u`` for client identifier and user name.
        superuser: the login is exempt from all rules.
    """

    rules: tuple[Rule, ...] = ()
    superuser: bool = False


EVERYTHING: Final = Grant((Rule(Permission.READWRITE, "#"),))
"""Where rights were checked when there still was a login to ask."""


def parse_grant(
    said: object, *, superuser: bool = False, rules_max: int = GRANT_RULES_MAX
) -> Grant:
    """Read what a token or a service says a client may do; None = nothing.

    Args:
        said: decoded JSON, in one of the two forms.
        superuser: see ``Grant``.
        rules_max: most rules.

    Raises:
        ValueError: it has neither form, or a rule is wrong.
    """
    if said is None:
        return Grant((), superuser)
    if isinstance(said, Mapping):
        unknown = [str(name) for name in said if name not in _LISTS]
        if unknown:
            raise ValueError(f"unknown list {unknown[0]!r}; there are {', '.join(_LISTS)}")
        lines = []
        for name, listed in said.items():
            for text in _texts(listed):
                if not text.strip():
                    # Alone, the permission would be taken for a topic filter.
                    raise ValueError(f"an empty topic in {name!r}")
                lines.append(f"{_LISTS[name].value} {text}")
    else:
        lines = _texts(said)
    return grant_of(lines, superuser=superuser, rules_max=rules_max)


def grant_of(
    lines: Iterable[str], *, superuser: bool = False, rules_max: int = GRANT_RULES_MAX
) -> Grant:
    """Read rules such as ``read public/#``.

    Raises:
        ValueError: one is wrong, or there are too many.
    """
    rules = tuple(parse_rule(line.strip(), is_pattern=True) for line in lines)
    if len(rules) > rules_max:
        raise ValueError(f"more than {rules_max} rules")
    return Grant(rules, superuser)


def _texts(listed: object) -> list[str]:
    if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
        raise ValueError("rules are a list of texts")
    return listed
