"""How a subscription is named, and that it survives its encoding."""

from __future__ import annotations

import msgspec
import pytest

from perdure.model import BackfillProgress, Subscription
from perdure.model.subscription import filter_of


def test_the_name_is_what_the_client_wrote() -> None:
    assert Subscription("a/#").name == "a/#"
    assert Subscription("a/#", "g").name == "$share/g/a/#"
    assert Subscription("a/#", "g").group_key == "g/a/#"


@pytest.mark.parametrize("topic_filter", ["a/#", "/", "+/b", "$SYS/#"])
@pytest.mark.parametrize("group", ["", "g"])
@pytest.mark.parametrize("where_id", ["", "hot"])
def test_a_name_tells_the_filter(topic_filter: str, group: str, where_id: str) -> None:
    assert filter_of(Subscription(topic_filter, group, where_id=where_id).name) == topic_filter


def test_it_survives_its_encoding() -> None:
    progress = BackfillProgress(retained=True, retained_after="a", retained_until=4, after_offset=5)
    subscription = Subscription("a/+", "g", 1, True, True, 2, 3, 4, 5, progress)
    data = msgspec.msgpack.encode(subscription)
    assert msgspec.msgpack.decode(data, type=Subscription) == subscription
