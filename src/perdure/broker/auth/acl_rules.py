"""The ACL file: which client may read and write which topics.

The syntax is that of Mosquitto's ``acl_file``::

    # comment
    topic read public/#
    user ada
    topic readwrite lab/+/state
    topic deny lab/secret/#
    pattern write devices/%c/data

``topic`` lines hold for the user named above them, or before any ``user`` line for clients
without a proved name. ``pattern`` lines hold for all; ``%c`` and ``%u`` stand for client
identifier and user name, as a whole level. What no line allows is refused, and ``deny`` beats
all other lines whatever their order. Must not know sessions or packets.

Invariant: a name that a client chose is compared as one level and as nothing else. No wildcard,
slash or ``$`` in it widens what an administrator wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, final

from perdure.broker.auth.authorize import Identity
from perdure.errors import ConfigError
from perdure.topic.matching import FilterMatcher, compile_filter, covers, intersects, matches
from perdure.topic.names import is_wildcard
from perdure.topic.rules import BLANKS, Permission, Rule, fill, first_word, parse_rule

ACL_FILE_BYTES_MAX: Final = 64 * 1024 * 1024
"""About a million lines; the file is read as a whole."""


@final
class FilterSet:
    """Topic filters, of which one has to match."""

    __slots__ = ("_exact", "_wildcards", "filters")

    def __init__(self, filters: Iterable[str]) -> None:
        self.filters: tuple[str, ...] = tuple(dict.fromkeys(filters))
        self._exact: frozenset[str] = frozenset(f for f in self.filters if not is_wildcard(f))
        self._wildcards: tuple[FilterMatcher, ...] = tuple(
            compile_filter(f) for f in self.filters if is_wildcard(f)
        )

    def matches(self, topic: str) -> bool:
        """Whether one of the filters matches the topic."""
        if topic in self._exact:
            return True
        return any(matcher.matches(topic) for matcher in self._wildcards)


@final
class Section:
    """The ``topic`` lines of one user, sorted by what they say."""

    __slots__ = ("deny", "read", "write")

    def __init__(self, rules: Iterable[Rule]) -> None:
        listed = list(rules)
        self.read = FilterSet(r.filter for r in listed if r.permission.reads)
        self.write = FilterSet(r.filter for r in listed if r.permission.writes)
        self.deny = FilterSet(r.filter for r in listed if r.permission is Permission.DENY)


_NOTHING: Final = Section(())


@final
class ListedRule(NamedTuple):
    """A rule as it stands in the file.

    Attributes:
        who: ``anonymous``, ``user`` or ``pattern``.
        user: name, if it is of a user.
        rule: the rule.
    """

    who: str
    user: str | None
    rule: Rule


@final
class AclRules:
    """An ACL file, read; see ``parse`` and ``load``."""

    __slots__ = ("_anonymous", "_patterns", "_users", "listed")

    def __init__(
        self,
        anonymous: Sequence[Rule],
        users: dict[str, list[Rule]],
        patterns: Sequence[Rule],
        *,
        listed: Sequence[ListedRule] = (),
    ) -> None:
        self.listed = tuple(listed)
        """All rules in the order of the file."""
        self._anonymous = Section(anonymous)
        self._users = {user: Section(rules) for user, rules in users.items()}
        self._patterns = tuple(patterns)

    @classmethod
    def load(cls, path: Path | str) -> AclRules:
        """Read a file.

        Raises:
            ConfigError: it cannot be read, or a line is wrong (``file:line`` in the text).
        """
        try:
            with Path(path).open("rb") as file:
                data = file.read(ACL_FILE_BYTES_MAX + 1)
        except OSError as error:
            raise ConfigError(f"cannot read ACL file {path}: {error.strerror}") from error
        if len(data) > ACL_FILE_BYTES_MAX:
            raise ConfigError(f"{path} is larger than {ACL_FILE_BYTES_MAX} bytes")
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            number = data.count(b"\n", 0, error.start) + 1
            raise ConfigError(f"{path}:{number}: not UTF-8") from None
        return cls.parse(text, name=str(path))

    @classmethod
    def parse(cls, text: str, *, name: str) -> AclRules:
        """Read a text.

        Args:
            text: the lines.
            name: what error texts call the file.

        Raises:
            ConfigError: a line is wrong.
        """
        anonymous: list[Rule] = []
        users: dict[str, list[Rule]] = {}
        patterns: list[Rule] = []
        listed: list[ListedRule] = []
        user: str | None = None
        current = anonymous
        for number, raw in enumerate(text.split("\n"), start=1):
            line = raw.strip(BLANKS)
            if not line or line.startswith("#"):
                continue
            keyword, argument = first_word(line)
            try:
                if not argument:
                    raise ValueError(f"nothing after {keyword!r}")
                if keyword == "user":
                    user = argument
                    current = users.setdefault(argument, [])
                elif keyword == "topic":
                    current.append(parse_rule(argument, is_pattern=False))
                    who = "anonymous" if user is None else "user"
                    listed.append(ListedRule(who, user, current[-1]))
                elif keyword == "pattern":
                    patterns.append(parse_rule(argument, is_pattern=True))
                    listed.append(ListedRule("pattern", None, patterns[-1]))
                else:
                    raise ValueError(f"unknown keyword {keyword!r}")
            except ValueError as error:
                raise ConfigError(
                    f"{name}:{number}: {error}",
                    hint="lines are 'user NAME', 'topic [read|write|readwrite|deny] FILTER' and "
                    "'pattern [read|write|readwrite|deny] FILTER'",
                ) from None
        return cls(anonymous, users, patterns, listed=listed)

    def access(self, identity: Identity) -> Access:
        """Bring together what holds for one identity."""
        if identity.username is None:
            section = self._anonymous
        else:
            section = self._users.get(identity.username, _NOTHING)
        substituted: list[Rule] = []
        granted: Iterable[Rule] = getattr(identity.grant, "rules", ())
        for rule in (*self._patterns, *granted):
            filled = fill(rule, client_id=identity.client_id, username=identity.username)
            if filled is not None:
                substituted.append(Rule(rule.permission, filled))
        return Access(self, section, substituted)


@final
class Access:
    """What one identity may do under one set of rules, and the decisions made so far."""

    __slots__ = ("_deny", "_read", "_section", "_write", "deliver", "publish", "rules")

    def __init__(self, rules: AclRules, section: Section, patterns: Iterable[Rule]) -> None:
        listed = list(patterns)
        self.rules = rules
        self._section = section
        # Plain texts, not compiled: there is one such set for each client, and most topics are
        # decided once.
        self._read = tuple(r.filter for r in listed if r.permission.reads)
        self._write = tuple(r.filter for r in listed if r.permission.writes)
        self._deny = tuple(r.filter for r in listed if r.permission is Permission.DENY)
        self.publish: dict[str, bool] = {}
        self.deliver: dict[str, bool] = {}

    def may_write(self, topic: str) -> bool:
        """Whether the lines allow publishing to the topic."""
        allowed = self._section.write.matches(topic) or _any_matches(self._write, topic)
        return allowed and not self._denied(topic)

    def may_read(self, topic: str) -> bool:
        """Whether the lines allow being given the topic."""
        allowed = self._section.read.matches(topic) or _any_matches(self._read, topic)
        return allowed and not self._denied(topic)

    def may_read_some(self, topic_filter: str) -> bool:
        """Whether some topic of the filter may be readable.

        Errs on the side of yes: where ``deny`` lines only together leave nothing of the filter,
        the subscription is granted and stays silent.
        """
        deny = (*self._section.deny.filters, *self._deny)
        if any(covers(denied, topic_filter) for denied in deny):
            return False
        return any(
            intersects(allowed, topic_filter) and not any(covers(d, allowed) for d in deny)
            for allowed in (*self._section.read.filters, *self._read)
        )

    def _denied(self, topic: str) -> bool:
        return self._section.deny.matches(topic) or _any_matches(self._deny, topic)


def _any_matches(filters: tuple[str, ...], topic: str) -> bool:
    return any(matches(topic_filter, topic) for topic_filter in filters)
