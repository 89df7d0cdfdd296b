"""What a session is owed: the cases that a random one rarely meets; see ``tests/model``."""

from __future__ import annotations

import pytest

from perdure.model import Cursor, InboxEntry, Message, Subscription
from perdure.session.pending import DeliveryProgress, PendingMessage, PendingMessages
from perdure.session.subscriptions import SessionSubscriptions

NOW_US = 1_000


def message(offset: int, *, expires_at_us: int = 0) -> Message:
    return Message("t", b"", 1, expires_at_us=expires_at_us, offset=offset)


def enumeration(
    messages: list[Message], entries: list[InboxEntry], serial: int = 0
) -> PendingMessages:
    subscriptions = SessionSubscriptions("c", [Subscription("t", qos=1)])
    return PendingMessages(subscriptions, serial).page(messages, entries)


def test_what_was_carried_over_comes_once() -> None:
    messages = [message(10), message(20), message(30)]
    entries = [
        InboxEntry(5, None, qos=1),
        InboxEntry(20, message(20), qos=1),
        InboxEntry(40, None, qos=1),
    ]
    found = list(enumeration(messages, entries))
    assert [each.offset for each in found] == [5, 10, 20, 30, 40]
    assert [each.entry is not None for each in found] == [True, False, True, False, True]
    assert [each.offset for each in enumeration(messages, [])] == [10, 20, 30]
    assert [each.offset for each in enumeration([], entries)] == [5, 20, 40]


@pytest.mark.parametrize("entry_at", [25, 30])
def test_a_run_ends_before_an_entry_of_the_private_stream(entry_at: int) -> None:
    messages = [message(10), message(20), message(30), message(40)]
    pending = enumeration(messages, [InboxEntry(entry_at, message(entry_at), qos=1)])
    assert pending.advance()
    run = pending.run(10)
    assert [each.offset for each in run] == [10, 20]
    assert pending.serial == 2
    rest = [(each.serial, each.offset) for each in pending]
    assert rest == [(3, 25), (4, 30), (5, 40)] if entry_at == 25 else [(3, 30), (4, 40)]


def test_what_is_given_back_comes_again_with_its_number() -> None:
    pending = enumeration([message(n) for n in range(1, 5)], [], serial=70)
    assert pending.advance()
    assert len(pending.run(3)) == 3
    pending.give_back(2)
    assert [(each.serial, each.offset) for each in pending] == [(72, 2), (73, 3), (74, 4)]


def one(
    *, expires_at_us: int = 0, forget_at_us: int = 0, serial: int = 2, offset: int = 9
) -> PendingMessage:
    sent = message(offset, expires_at_us=expires_at_us)
    entry = InboxEntry(offset, sent, qos=1, forget_at_us=forget_at_us) if forget_at_us else None
    return PendingMessage(offset, sent, 1, False, (), entry, serial)


@pytest.mark.trap(13)
@pytest.mark.parametrize(
    ("pending", "is_past"),
    [
        (one(), False),
        (one(expires_at_us=NOW_US + 1), False),
        (one(expires_at_us=NOW_US), True),
        (one(expires_at_us=NOW_US, serial=1), False),  # its sending is on record
        (one(expires_at_us=NOW_US, offset=8), False),  # a cut connection may have sent it
        (one(forget_at_us=NOW_US), True),
        (one(forget_at_us=NOW_US, offset=8), True),
        (one(forget_at_us=NOW_US + 1), False),
    ],
)
def test_what_was_never_sent_is_past_its_time(pending: PendingMessage, is_past: bool) -> None:
    progress = DeliveryProgress(Cursor(sent=1), cut_offset=8)
    assert progress.is_past(pending, NOW_US) is is_past


def test_what_became_of_each() -> None:
    progress = DeliveryProgress(Cursor(settled=(2,), released=(3,), sent=4), cut_offset=0)
    each = [one(serial=serial) for serial in range(1, 6)]
    assert [progress.is_settled(one) for one in each] == [False, True, False, False, False]
    assert [progress.is_released(one) for one in each] == [False, False, True, False, False]
    assert [progress.was_sent(one) for one in each] == [True, True, True, True, False]
    assert progress.is_settled(PendingMessage(9, None, 1, False, (), None, 5))
