"""How a subscription is named, and that it survives its encoding."""

from __future__ import annotations

import msgspec

from perdure.model import BackfillProgress, Subscription


def test_the_name_is_what_the_client_wrote() -> None:
    assert Subscription("a/#").name == "a/#"
    assert Subscription("a/#", "g").name == "$share/g/a/#"
    assert Subscription("a/#", "g").group_key == "g/a/#"


def test_it_survives_its_encoding() -> None:
    progress = BackfillProgress(retained=True, retained_after="a", retained_until=4, after_offset=5)
    subscription = Subscription("a/+", "g", 1, True, True, 2, 3, 4, 5, progress)
    data = msgspec.msgpack.encode(subscription)
    assert msgspec.msgpack.decode(data, type=Subscription) == subscription
