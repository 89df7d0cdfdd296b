"""What content filters cost: ``python -m benchmarks filters``.

One topic, subscriptions with distinct filters, each message wanted by the subscriptions of one of
them. The sessions take what they are given, so this is the dispatch alone, and on the pure source:
what is compiled takes no session of ours.
Trying all filters, and those that the index finds, is measured on whatever build runs this.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Final, final

from benchmarks import record
from perdure.broker.dispatch.dispatcher import Dispatcher
from perdure.broker.dispatch.router import Router, Subscriber, SubscriberEntry
from perdure.content import parse_filter
from perdure.content.document import content_of
from perdure.content.index import ContentIndex
from perdure.model import Message, SessionRecord, Subscription
from perdure.observe.metrics import Metrics
from perdure.pure import build

TOPIC: Final = "plant/line"
MESSAGES: Final = 100
ROUNDS: Final = 5
KINDS: Final = {
    "equality and a bound": '{{"line":{{"$eq":{0}}},"t":{{"$gt":30}}}}',
    "ranges of 1 in 1,000": '{{"line":{{"$gte":{0},"$lt":{0}.5}}}}',
    "one of two values": '{{"line":{{"$in":[{0},-1]}}}}',
    "bounds, half of which hold": '{{"line":{{"$gte":{0}}}}}',
    "conditions that no index helps": '{{"line":{{"$not":{{"$gte":{0}}}}}}}',
}
"""Filters number 0 to 999; a message has a ``line`` of 0 to 999."""
SHAPES: Final = ((100_000, 1_000), (100_000, 100), (1_000, 1_000))
"""Subscriptions and distinct filters."""


def _where(number: int) -> str:
    return KINDS["equality and a bound"].format(number)


def _message(number: int) -> Message:
    return Message(TOPIC, b'{"line": %d, "t": 31.5, "unit": "C"}' % number)


def _dispatcher(subscriptions: int, filters: int) -> Dispatcher:
    @final
    class Deaf(Subscriber):
        """A session that takes what it is given."""

        def deliver_one(self, message: Message, entry: SubscriberEntry) -> None:
            pass

        def room_for_run(self, first: Message, entry: SubscriberEntry) -> int:
            return 0

    router = Router()
    for number in range(subscriptions):
        session = Deaf(SessionRecord(f"c{number}", 1, 0, 0, True, 0), durable=False)
        where = _where(number % filters) if filters else ""
        router.put(session, Subscription(TOPIC, where=where))
    return Dispatcher(router, Metrics(), offset=0, gate_qos2=False)


def _us_of_dispatch(subscriptions: int, filters: int) -> list[float]:
    """Microseconds for a message, the median of each round."""
    dispatcher = _dispatcher(subscriptions, filters)
    found = []
    for _ in range(ROUNDS):
        times = []
        for number in range(MESSAGES):
            message = _message(number % max(1, filters))
            begun = time.perf_counter()
            dispatcher.accept([message])
            dispatcher.run(0)
            times.append((time.perf_counter() - begun) * 1e6)
        found.append(statistics.median(times))
    return found


def _us_of_trying(filters: int, kind: str, *, indexed: bool) -> list[float]:
    """Microseconds for a message: those filters that hold are found, of all of a kind."""
    conditions = {
        condition.text: condition
        for condition in (parse_filter(KINDS[kind].format(number)) for number in range(filters))
    }
    index = ContentIndex()
    for condition in conditions.values():
        index.put(condition)
    index.candidates(content_of(_message(0)))  # what is built when it is asked first
    found = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        for number in range(MESSAGES):
            content = content_of(_message(number * filters // MESSAGES))
            for text in index.candidates(content) if indexed else conditions:
                conditions[text].holds_for(content)
        found.append((time.perf_counter() - begun) * 1e6 / MESSAGES)
    return found


def _us_of_changes(filters: int) -> list[float]:
    """Microseconds for a filter that comes into an index and goes again, with a look between."""
    index = ContentIndex()
    text = KINDS["ranges of 1 in 1,000"]
    for number in range(filters):
        index.put(parse_filter(text.format(number)))
    more = [parse_filter(text.format(filters + number)) for number in range(500)]
    found = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        for number, condition in enumerate(more):
            index.put(condition)
            index.candidates(content_of(_message(number)))
            index.remove(condition)
        found.append((time.perf_counter() - begun) * 1e6 / len(more))
    return found


def run() -> bool:
    """Measure, and write the record."""
    started_at = record.now()
    checks = []
    for kind in KINDS:
        for indexed in (False, True):
            how = "found by the index" if indexed else "tried one by one"
            times = _us_of_trying(1_000, kind, indexed=indexed)
            checks.append(record.check(f"1,000 filters, {kind}: {how}", times, "us"))
    changes = _us_of_changes(10_000)
    checks.append(record.check("a range comes to 10,000, a message, it goes", changes, "us"))
    if build() == "pure":
        for subscriptions, filters in SHAPES:
            what = f"{subscriptions:,} subscriptions with {filters:,} filters, a message to one"
            checks.append(record.check(what, _us_of_dispatch(subscriptions, filters), "us"))
        what = "100 subscriptions without a filter, a message to all"
        checks.append(record.check(what, _us_of_dispatch(100, 0), "us"))
    name = "filters" if build() == "pure" else "filters-compiled"
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as directory:
        return record.write(
            name,
            started_at,
            data=Path(directory),
            settings={"messages": MESSAGES, "rounds": ROUNDS, "build": build()},
            checks=checks,
            values={},
        )
