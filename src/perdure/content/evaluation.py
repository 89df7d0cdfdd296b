"""Content filters of subscriptions, tried on messages: each distinct one once for a message.

Knows no sessions. Who is asked about the same message again, by whichever subscription, answers
from what was found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, final

from perdure.content.document import Content, content_of
from perdure.content.predicate import ContentFilter
from perdure.content.syntax import parse_filter
from perdure.errors import FormatTooNew
from perdure.model import Message, Subscription

KEPT_MAX: Final = 1_024
"""Filters that one ``Evaluation`` keeps parsed."""


def stored_filter(text: str) -> ContentFilter:
    """The filter of a stored subscription, which was checked when it was made.

    Raises:
        FormatTooNew: a later release wrote it.
    """
    try:
        return parse_filter(text)
    except ValueError as error:
        raise FormatTooNew(f"a stored content filter cannot be read: {error}") from error


@final
class Evaluation:
    """What filters say of one message: the one that was asked about last."""

    __slots__ = ("_content", "_filters", "_message", "_results")

    def __init__(self) -> None:
        self._message: Message | None = None
        self._content: Content | None = None
        self._results: dict[str, bool] = {}
        self._filters: dict[str, ContentFilter] = {}

    def holds(self, text: str, message: Message, condition: ContentFilter | None = None) -> bool:
        """Whether a message fulfils a filter.

        Args:
            text: of the filter, one that was checked.
            message: asked about.
            condition: the parsed filter, for whoever has it at hand.
        """
        content = self.content_of(message)
        found = self._results.get(text)
        if found is None:
            if condition is None:
                condition = self._parsed(text)
            found = self._results[text] = condition.holds_for(content)
        return found

    def content_of(self, message: Message) -> Content:
        """What filters see of a message."""
        content = self._content
        if message is not self._message or content is None:
            self._message = message
            content = self._content = content_of(message)
            self._results.clear()
        return content

    def fulfilled(self, subs: Sequence[Subscription], message: Message) -> list[Subscription]:
        """The subscriptions that want a message, going by its content."""
        return [sub for sub in subs if not sub.where or self.holds(sub.where, message)]

    def _parsed(self, text: str) -> ContentFilter:
        found = self._filters.get(text)
        if found is None:
            if len(self._filters) >= KEPT_MAX:
                self._filters.clear()
            found = self._filters[text] = stored_filter(text)
        return found


def are_filtered(subs: Iterable[Subscription]) -> bool:
    """Whether any subscription has a content filter."""
    return any(sub.where for sub in subs)


def fulfils(sub: Subscription, message: Message) -> bool:
    """Whether one subscription wants a message, going by its content."""
    return not sub.where or stored_filter(sub.where).fulfilled_by(message)
