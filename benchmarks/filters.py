"""What content filters cost: ``python -m benchmarks filters``.

One topic, subscriptions with distinct filters, each message wanted by the subscriptions of one of
them: what a message costs beyond its deliveries is trying every filter once. The sessions take
what they are given, so this is the dispatch alone, and on the pure source: what is compiled takes
no session of ours.
Trying the filters is measured on whatever build runs this.
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
from perdure.model import Message, SessionRecord, Subscription
from perdure.observe.metrics import Metrics
from perdure.pure import build

TOPIC: Final = "plant/line"
MESSAGES: Final = 100
ROUNDS: Final = 5
SHAPES: Final = ((100_000, 1_000), (100_000, 100), (1_000, 1_000))
"""Subscriptions and distinct filters."""


def _where(number: int) -> str:
    return f'{{"line":{{"$eq":{number}}},"t":{{"$gt":30}}}}'


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


def _us_of_trying(filters: int) -> list[float]:
    conditions = [parse_filter(_where(number)) for number in range(filters)]
    found = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        for number in range(MESSAGES):
            content = content_of(_message(number))
            for condition in conditions:
                condition.holds_for(content)
        found.append((time.perf_counter() - begun) * 1e6 / MESSAGES)
    return found


def run() -> bool:
    """Measure, and write the record."""
    started_at = record.now()
    checks = [record.check("trying 1,000 filters on a message", _us_of_trying(1_000), "us")]
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
