"""Each distinct filter is tried once on a message, whoever asks."""

from __future__ import annotations

import pytest

from perdure.content import Evaluation, fulfils, parse_filter
from perdure.content.evaluation import KEPT_MAX
from perdure.errors import FormatTooNew
from perdure.model import Message, Subscription

HOT = '{"t":{"$gt":30}}'


def test_the_answer_is_found_once_for_each_message() -> None:
    evaluation = Evaluation()
    hot, cold = Message("a", b'{"t": 31}'), Message("a", b'{"t": 3}')
    never = parse_filter('{"$not": {}}')
    assert evaluation.holds(HOT, hot)
    assert evaluation.holds(HOT, hot, never)  # not asked again
    assert not evaluation.holds(HOT, cold)
    assert evaluation.holds(HOT, hot)


def test_more_filters_than_are_kept() -> None:
    evaluation = Evaluation()
    message = Message("a", b'{"t": 5}')
    for number in range(KEPT_MAX + 2):
        assert evaluation.holds(f'{{"t":{number}}}', message) is (number == 5)


def test_subscriptions_without_a_filter_want_everything() -> None:
    subs = [Subscription("a"), Subscription("a", where=HOT), Subscription("#", where='{"t":3}')]
    message = Message("a", b'{"t": 3}')
    assert Evaluation().fulfilled(subs, message) == [subs[0], subs[2]]
    assert [fulfils(sub, message) for sub in subs] == [True, False, True]


def test_a_stored_filter_of_a_later_release() -> None:
    with pytest.raises(FormatTooNew, match="no such operator"):
        fulfils(Subscription("a", where='{"t":{"$near":1}}'), Message("a", b"1"))
