"""Topics as channels."""

from __future__ import annotations

import pytest

from perdure.registry.channel import Channel
from perdure.registry.topics import channel_of, topic_of

ONE = Channel("plant", "task", "ada", "9")


def test_there_and_back() -> None:
    assert topic_of(ONE) == "app/plant/user/ada/model/task/id/9"
    assert channel_of(topic_of(ONE)) == ONE
    assert channel_of("app/plant/model/task/#") == Channel("plant", "task")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "#",
        "app/#",
        "app/+/model/task",
        "app/plant",
        "plant/app/x",
        "app/a:b/model/c",
        "app//model/x",
    ],
)
def test_what_has_no_channel(name: str) -> None:
    assert channel_of(name) is None
