"""Who is in the cluster: what every node computes alike from the records, in their order.

A node is a member from the first record of an incarnation (``Join``) until that incarnation leaves,
is expelled, or is replaced by a later one of the same name. What comes from an incarnation that is
no member counts for nothing, so the order of the log is the only fence.

=====================  ==============================================================
record                 what becomes of it
=====================  ==============================================================
the next number        admitted
a number again         repeated: it has been applied
a number left out      broken: something before it is lost, the incarnation is expelled
number 1, unknown      admitted if it joins; an earlier incarnation is expelled by it
anything else          stale
=====================  ==============================================================

Time is the log's, and goes forward only: the highest of the times of all records so far. Silence
is not a difference of that: the clock of a log's machine may be set, or another machine with
another clock lead, which moves the time of the next record by any amount. What passes between two
records counts, up to what nodes that live leave between two (``GAP_MAX_US``).

Pure: no clock, no chance. Invariant: equal records in equal order give equal members.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple, final

import msgspec

from perdure.storage.ordered.member import Member
from perdure.storage.ordered.record import ANYHOW, Expel, Forget, Join, Leave, Record

FORMER_MAX: Final = 16
"""Incarnations of a name that are remembered, so that none of them comes back."""

GAP_MAX_US: Final = 2_000_000
"""What counts as silence of the time between two records, microseconds: a member that has nothing
else to say beats once a second, so in a longer gap the log took nothing, or its clock was set."""


class Verdict(Enum):
    """What becomes of a record."""

    ADMITTED = "admitted"
    REPEATED = "repeated"
    BROKEN = "broken"
    STALE = "stale"


class Ending(Enum):
    """Why an incarnation is no member any more."""

    LEFT = "left"
    EXPELLED = "expelled"
    REPLACED = "replaced"
    BROKEN = "broken"


class Ended(NamedTuple):
    """An incarnation is no member any more.

    Attributes:
        node, incarnation: which.
        at_us: log time from which what it held is let go.
        ending: why.
    """

    node: str
    incarnation: int
    at_us: int
    ending: Ending


_replace: Final = msgspec.structs.replace


@final
class _Known:
    """A node that is known.

    Attributes:
        format: as ``Member.format``.
        number: of its last record.
        heard_us: log time of that.
        passed_us: what had passed then of the time that counts as silence.
    """

    __slots__ = ("_member", "format", "heard_us", "incarnation", "number", "passed_us")

    def __init__(self, member: Member, passed_us: int) -> None:
        self._member: Member = member
        self.format: int = member.format
        self.incarnation: int = member.incarnation
        self.number: int = member.number
        self.heard_us: int = member.heard_us
        self.passed_us: int = passed_us

    def put(self, member: Member) -> None:
        """Something else is known of it than its last record."""
        self._member = member
        self.incarnation = member.incarnation
        self.number = member.number
        self.heard_us = member.heard_us

    def member(self) -> Member:
        """What is known of it; made anew only when it is asked for, for it has many records."""
        if self._member.number != self.number:
            self._member = _replace(self._member, number=self.number, heard_us=self.heard_us)
        return self._member


@final
class Members:
    """All nodes that were ever heard of and not forgotten.

    Args:
        known: what was stored of them.
        now_us: log time then.

    Attributes:
        now_us: log time.
        changed: names of those of which something else is known since ``take_changed``.
    """

    def __init__(self, known: Iterable[Member] = (), now_us: int = 0) -> None:
        self._known: dict[str, _Known] = {
            member.name: _Known(member, member.heard_us - now_us) for member in known
        }
        self.now_us = now_us
        self.changed: dict[str, None] = {}
        self._latest_us = now_us
        """Time of the last record, as it is."""
        self._passed_us = 0
        """What counts of the time since ``known``."""

    def advance(self, time_us: int) -> int:
        """A record has entered the log at a time; returns log time."""
        self._passed_us += max(0, min(time_us - self._latest_us, GAP_MAX_US))
        self._latest_us = time_us
        self.now_us = max(self.now_us, time_us)
        return self.now_us

    def get(self, name: str) -> Member | None:
        """What is known of a node."""
        known = self._known.get(name)
        return None if known is None else known.member()

    def all(self) -> list[Member]:
        """Everybody, by name."""
        return [self._known[name].member() for name in sorted(self._known)]

    def current(self) -> list[Member]:
        """The members, by name."""
        return [member for member in self.all() if member.incarnation]

    def holds(self, name: str, incarnation: int) -> bool:
        """Whether an incarnation is a member."""
        known = self._known.get(name)
        return known is not None and known.incarnation == incarnation != 0

    @property
    def format(self) -> int:
        """The newest version of records that all nodes read; 0 = none is known.

        Also those that are not there now: one that has died goes on with the release that it had.
        """
        return min((known.format for known in self._known.values()), default=0)

    def take_changed(self) -> list[tuple[str, Member | None]]:
        """Names, and what is known now, of those that have changed; None = forgotten."""
        changed = [(name, self.get(name)) for name in self.changed]
        self.changed = {}
        return changed

    def is_next(self, name: str, incarnation: int, number: int) -> bool:
        """Whether a record is the next one of a member."""
        known = self._known.get(name)
        return (
            known is not None
            and known.number + 1 == number
            and known.incarnation == incarnation != 0
        )

    def hear(self, name: str, number: int) -> None:
        """The next record of a member (``is_next``) is admitted."""
        known = self._known[name]
        known.number = number
        known.heard_us = self.now_us
        known.passed_us = self._passed_us
        self.changed[name] = None

    def admit(self, record: Record) -> tuple[Verdict, list[Ended]]:
        """A record is next in the log (``advance`` was told its time).

        Returns:
            What becomes of it, and the incarnations that have ended by its coming; what its acts
            do is ``act``'s.
        """
        known = self._known.get(record.node)
        if known is not None and record.incarnation == known.incarnation:
            if record.number <= known.number:
                return Verdict.REPEATED, []
            if record.number != known.number + 1:
                return Verdict.BROKEN, [self._end(known, Ending.BROKEN)]
            self.hear(record.node, record.number)
            return Verdict.ADMITTED, []
        joins = [act for act in record.acts if isinstance(act, Join)]
        former = () if known is None else known.member().former
        if record.number != 1 or not joins or not record.incarnation:
            return Verdict.STALE, []
        if record.incarnation in former:
            return Verdict.STALE, []
        ended: list[Ended] = []
        if known is not None and known.incarnation:
            ended.append(self._end(known, Ending.REPLACED))
            former = known.member().former
        member = Member(
            record.node,
            record.incarnation,
            1,
            self.now_us,
            self.now_us,
            joins[0].format,
            former,
            advertise=joins[0].advertise,
        )
        self._known[record.node] = _Known(member, self._passed_us)
        self.changed[record.node] = None
        return Verdict.ADMITTED, ended

    def act(self, record: Record) -> list[Ended]:
        """Do what the acts of an admitted record say of members; returns whom they have ended."""
        ended: list[Ended] = []
        for act in record.acts:
            if isinstance(act, Leave):
                known = self._known[record.node]
                if known.incarnation == record.incarnation:
                    ended.append(self._end(known, Ending.LEFT))
            elif isinstance(act, Expel):
                target = self._known.get(act.node)
                if (
                    target is not None
                    and target.incarnation == act.incarnation != 0
                    and (act.heard == ANYHOW or target.number == act.heard)
                ):
                    ended.append(self._end(target, Ending.EXPELLED))
            elif isinstance(act, Forget):
                target = self._known.get(act.node)
                if target is not None and not target.incarnation:
                    del self._known[act.node]
                    self.changed[act.node] = None
        return ended

    def silent(self, dead_after_us: int) -> list[Expel]:
        """The acts that expel those of whom nothing was heard for so long."""
        return [
            Expel(member.name, member.incarnation, member.number)
            for member in self.current()
            if self.silence_us(member.name) > dead_after_us
        ]

    def silence_us(self, name: str) -> int:
        """For how long nothing was heard of a node that is known, while others were."""
        return self._passed_us - self._known[name].passed_us

    def _end(self, known: _Known, ending: Ending) -> Ended:
        member = known.member()
        known.put(
            _replace(
                member,
                incarnation=0,
                former=(*member.former, member.incarnation)[-FORMER_MAX:],
                left_us=self.now_us,
                reason=ending.value,
            )
        )
        self.changed[member.name] = None
        return Ended(member.name, member.incarnation, self.now_us, ending)
