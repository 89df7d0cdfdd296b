"""Forwarders that are added to a broker that runs."""

from __future__ import annotations

import pytest

from perdure.errors import ConfigError
from tests.support.forwarder_bench import Bench


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"url": "elsewhere"}, "forwarders.under-test.url: no URL of a broker"),
        ({"url": "mqtt://h", "topic": "a/#"}, "forwarders.under-test.topic: a topic has no '#'"),
        ({"url": "mqtt://h", "window": "0"}, "forwarders.under-test.window: must be at least 1"),
        ({"url": "mqtt://h", "where": "{"}, "forwarders.under-test.where: a content filter"),
    ],
)
async def test_a_setting_that_cannot_be_used_is_named(settings: dict[str, str], said: str) -> None:
    """Whoever adds one over the socket or HTTP sees the message alone, without its path."""
    bench = Bench({"type": "mqtt", **settings})
    try:
        with pytest.raises(ConfigError) as refused:
            await bench.run()
        assert refused.value.message.startswith(said)
        assert not bench.forwarders.rows()
    finally:
        await bench.close()
