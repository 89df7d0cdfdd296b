"""A message that several subscriptions of a session match: it is delivered once (MQTT 5.0 section
3.3.4), as the highest of them ask for."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.broker.dispatch.router import Subscriber, SubscriberEntry, SubscriberSet
from perdure.content.evaluation import Evaluation
from perdure.model import Message, Subscription, combine


def add_filtered(
    evaluation: Evaluation,
    message: Message,
    subscriber_set: SubscriberSet,
    found: dict[Subscriber, list[SubscriberEntry]],
) -> None:
    """Add the subscriptions whose content filter a message fulfils to those that match it."""
    by_content = subscriber_set.by_content
    texts: Iterable[str] = subscriber_set.filtered
    if by_content is not None:
        texts = by_content.candidates(evaluation.content_of(message))
    for text in texts:
        filtered = subscriber_set.filtered.get(text)
        if filtered is not None and evaluation.holds(text, message, filtered.condition):
            for entry in filtered.entries.values():
                same = found.get(entry.session)
                if same is None:
                    found[entry.session] = [entry]
                else:
                    same.append(entry)


def deliver_combined(session: Subscriber, message: Message, entries: list[SubscriberEntry]) -> None:
    """Deliver once what several subscriptions of a session match."""
    ready: list[Subscription] = []
    for entry in entries:
        if entry.sub.backfill is not None and message.offset and session.backfilling:
            session.deliver_one(message, entry)
        else:
            ready.append(entry.sub)
    options = combine(ready, message, session.client_id)
    if options is not None:
        session.deliver(message, options.qos, options.retain, options.identifiers)
