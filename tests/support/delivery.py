"""The delivery promises as a checker: nothing acknowledged lost, QoS 2 once, order kept.

Publishers write into one ``Ledger``, each subscriber into its own ``Receipts``; ``audit`` compares
the two. It knows MQTT's rules and nothing of any broker: topic matching is spelled out here again,
so that a fault of ours in it cannot hide itself.

Every message carries a ``Stamp``: its publisher, and a number that counts from 1 for that
publisher and topic. The rules, for the messages of one publisher on one topic:

- **lost**: acknowledged, matches the subscription, never received.
- **repeated**: received twice although both sides asked for QoS 2.
- **redelivered**: received twice at QoS 1: allowed, counted.
- **out of order**: received for the first time after a later one was. The specification promises
  order among messages that were published with one QoS (MQTT 5.0 section 4.6); a broker that
  promises it across QoS levels is held to that with ``strict_order``.
- **foreign**: never sent, damaged, or not asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Self, final

import msgspec

EXAMPLES_MAX = 5
"""A verdict describes this many breaches in words; the rest is counted."""


class Stamp(msgspec.Struct, frozen=True):
    """What the payload of a message says about it.

    Attributes:
        publisher: who sent it; holds no blank.
        number: counts from 1 for each publisher and topic.
        attempt: how often a QoS 1 message was sent again, for publishers that say so.
    """

    publisher: str
    number: int
    attempt: int = 0

    def encode(self, size: int = 0) -> bytes:
        """The payload, filled up to ``size`` bytes."""
        return f"{self.publisher} {self.number} {self.attempt} ".encode().ljust(size, b".")

    @classmethod
    def decode(cls, payload: bytes) -> Self | None:
        """The stamp of a payload, or None if it is not one."""
        try:
            publisher, number, attempt, filling = payload.decode("ascii").split(" ")
            stamp = cls(publisher, int(number), int(attempt))
        except ValueError:
            return None
        return stamp if not filling.strip(".") else None


@final
class _Flow:
    """The messages of one publisher on one topic; index = number - 1."""

    __slots__ = ("acknowledged_at_us", "qos", "sent_at_us")

    def __init__(self) -> None:
        self.qos: list[int] = []
        self.sent_at_us: list[int] = []
        self.acknowledged_at_us: list[int] = []  # 0 = not acknowledged


@final
class Ledger:
    """What was published.

    Attributes:
        sent_count: messages given a number.
        acknowledged_count: messages for which PUBACK or PUBCOMP came.
    """

    def __init__(self) -> None:
        self.flows: dict[tuple[str, str], _Flow] = defaultdict(_Flow)
        self.sent_count = 0
        self.acknowledged_count = 0

    def send(self, publisher: str, topic: str, *, qos: int, at_us: int) -> Stamp:
        """Number the next message of a publisher on a topic, before it is sent."""
        flow = self.flows[publisher, topic]
        flow.qos.append(qos)
        flow.sent_at_us.append(at_us)
        flow.acknowledged_at_us.append(0)
        self.sent_count += 1
        return Stamp(publisher, len(flow.qos))

    def acknowledge(self, topic: str, stamp: Stamp, *, at_us: int) -> None:
        """The broker took responsibility for the message."""
        flow = self.flows[stamp.publisher, topic]
        if not flow.acknowledged_at_us[stamp.number - 1]:
            flow.acknowledged_at_us[stamp.number - 1] = at_us
            self.acknowledged_count += 1


@final
class Receipts:
    """What one subscriber received.

    Args:
        name: for reports.
        filters: topic filters, each with the maximum QoS that was granted.
        since_us: the subscriber asked for messages from this time only; 0 = all.
        wants: whether it asked for a message of a publisher by its number.

    Attributes:
        count: PUBLISH packets taken, repeats included.
    """

    def __init__(
        self,
        name: str,
        filters: Mapping[str, int],
        *,
        since_us: int = 0,
        wants: Callable[[str, int], bool] = lambda publisher, number: True,
    ) -> None:
        self.name = name
        self.wants = wants
        self.filters = dict(filters)
        self.since_us = since_us
        self.count = 0
        self.arrivals: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        self.unreadable: list[str] = []
        self._granted: dict[str, int] = {}

    def anew(self) -> Receipts:
        """Those of the same subscriber, with nothing received."""
        return Receipts(self.name, self.filters, since_us=self.since_us, wants=self.wants)

    def take(self, topic: str, payload: bytes, *, qos: int) -> Stamp | None:
        """Record one delivered message; None if its payload bears no stamp."""
        self.count += 1
        stamp = Stamp.decode(payload)
        if stamp is None:
            self.unreadable.append(f"{topic}: {payload[:40]!r}")
        else:
            self.arrivals[stamp.publisher, topic].append((stamp.number, qos))
        return stamp

    def granted(self, topic: str) -> int:
        """Highest QoS among the filters that match the topic; -1 if none does."""
        found = self._granted.get(topic)
        if found is None:
            matching = [qos for name, qos in self.filters.items() if matches(name, topic)]
            found = self._granted[topic] = max(matching, default=-1)
        return found


class Verdict(msgspec.Struct):
    """What the audit of one subscriber found.

    Attributes:
        name: the subscriber.
        expected: acknowledged messages that it must have received.
        received: distinct messages that it received.
        lost, repeated, out_of_order, foreign, wrong_qos: breaches, by kind.
        redelivered: repeats that QoS 1 allows.
        examples: some breaches in words.
    """

    name: str
    expected: int = 0
    received: int = 0
    lost: int = 0
    repeated: int = 0
    out_of_order: int = 0
    foreign: int = 0
    wrong_qos: int = 0
    redelivered: int = 0
    examples: list[str] = []

    @property
    def breaches(self) -> int:
        """Broken promises."""
        return self.lost + self.repeated + self.out_of_order + self.foreign + self.wrong_qos

    def note(self, kind: str, text: str) -> None:
        """Describe a breach, while there is room."""
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(f"{self.name}: {kind}: {text}")


def audit(
    ledger: Ledger, receipts: Receipts, *, strict_order: bool = False, any_order: bool = False
) -> Verdict:
    """Compare what one subscriber, or one shared group, received with what was published.

    Args:
        ledger: what was published.
        receipts: what was received.
        strict_order: order holds across QoS levels.
        any_order: no order was promised, as among the members of a group.

    Publishers and the subscriber may go on in other threads meanwhile: it looks at a copy.
    """
    verdict = Verdict(receipts.name)
    verdict.foreign = len(receipts.unreadable)
    for text in receipts.unreadable[:EXAMPLES_MAX]:
        verdict.note("foreign", text)
    for (publisher, topic), arrivals in list(receipts.arrivals.items()):
        flow = ledger.flows.get((publisher, topic))
        granted = receipts.granted(topic)
        if flow is None or granted < 0:
            verdict.foreign += len(arrivals)
            verdict.note("foreign", f"{publisher} on {topic}, which was not asked for")
            continue
        name = f"{publisher} {topic}"
        arrivals = arrivals.copy()
        unwanted = sum(not receipts.wants(publisher, number) for number, _ in arrivals)
        if unwanted:
            verdict.foreign += unwanted
            verdict.note("foreign", f"{name}: {unwanted} messages that were not asked for")
        _audit_arrivals(verdict, name, flow, arrivals, receipts.since_us, granted)
        for qos in () if any_order else (-1,) if strict_order else (0, 1, 2):
            _audit_order(verdict, name, flow, arrivals, qos, receipts.since_us)
    for (publisher, topic), flow in list(ledger.flows.items()):
        if receipts.granted(topic) < 1:
            continue
        seen = {number for number, _ in tuple(receipts.arrivals.get((publisher, topic), ()))}
        for index, acknowledged_at_us in enumerate(flow.acknowledged_at_us.copy()):
            owed = flow.qos[index] > 0 and acknowledged_at_us > 0
            if not owed or flow.sent_at_us[index] < receipts.since_us:
                continue
            if not receipts.wants(publisher, index + 1):
                continue
            verdict.expected += 1
            if index + 1 not in seen:
                verdict.lost += 1
                verdict.note("lost", f"{publisher} {topic} number {index + 1}")
    return verdict


def _audit_arrivals(
    verdict: Verdict,
    name: str,
    flow: _Flow,
    arrivals: list[tuple[int, int]],
    since_us: int,
    granted: int,
) -> None:
    """Repeats, QoS and origin within one publisher and topic."""
    seen: set[int] = set()
    for number, qos in arrivals:
        if not 1 <= number <= len(flow.qos):
            verdict.foreign += 1
            verdict.note("foreign", f"{name} number {number} was never sent")
            continue
        acknowledged_at_us = flow.acknowledged_at_us[number - 1]
        if 0 < acknowledged_at_us < since_us:
            verdict.foreign += 1
            verdict.note("foreign", f"{name} number {number} is older than what was asked for")
            continue
        level = min(flow.qos[number - 1], granted)
        if qos != level:
            verdict.wrong_qos += 1
            verdict.note("wrong QoS", f"{name} number {number}: {qos} instead of {level}")
        if number in seen:
            if level == 2:
                verdict.repeated += 1
                verdict.note("repeated", f"{name} number {number}")
            else:
                verdict.redelivered += 1
        seen.add(number)
    verdict.received += len(seen)


def _audit_order(
    verdict: Verdict,
    name: str,
    flow: _Flow,
    arrivals: list[tuple[int, int]],
    qos: int,
    since_us: int,
) -> None:
    """Order of the first copies among what was published with ``qos``; -1 = with any.

    A QoS 1 message may come again later (1, 2, 3, 2, 3, 4 is allowed), but never for the first
    time after a later one (MQTT 5.0 section 4.6). Who has asked for what there was since a moment
    may have the second copy of what was sent before it, and not the first.
    """
    seen: set[int] = set()
    latest = 0
    for number, _ in arrivals:
        if number in seen or not 1 <= number <= len(flow.qos):
            continue
        seen.add(number)
        if qos not in {-1, flow.qos[number - 1]}:
            continue
        if number < latest and flow.sent_at_us[number - 1] < since_us:
            continue
        if number < latest:
            verdict.out_of_order += 1
            verdict.note("out of order", f"{name} number {number} after {latest}")
        latest = max(latest, number)


def matches(topic_filter: str, topic: str) -> bool:
    """Whether a topic filter (without ``$share``) matches a topic name."""
    if topic.startswith("$") and topic_filter[:1] in {"+", "#"}:
        return False  # [MQTT-4.7.2-1]
    levels, names = topic_filter.split("/"), topic.split("/")
    for index, level in enumerate(levels):
        if level == "#":
            return True
        if index >= len(names) or level not in {"+", names[index]}:
            return False
    return len(levels) == len(names)
