"""A webhook whose service fails in every way."""

from __future__ import annotations

import hashlib
import hmac
import json
import random

import pytest

from perdure.errors import ConfigError
from perdure.forwarders.definitions import bind_settings
from perdure.model import Message
from tests.support.failing_service import FAILURES, FailingService
from tests.support.forwarder_bench import Bench


async def test_all_arrives_in_order_whatever_the_service_does() -> None:
    service = FailingService()
    await service.start()
    failures = random.Random(7).sample(FAILURES, len(FAILURES))
    service.plan = [step for failure in failures for step in (failure, "long")]
    settings = {"type": "webhook", "url": service.url, "secret": "key", "timeout_s": 1}
    bench = Bench(settings, batch_messages=2, retry_max_s=1)
    await bench.run()
    sent = [Message(f"t/{i}", b"%d" % i, 1) for i in range(30)]
    await bench.publish(*sent)
    await bench.until(lambda: bench.forwarded() >= 30)
    assert bench.forwarders.rows()[0].failures >= len(FAILURES)
    taken = [each for body in service.taken for each in json.loads(body)["messages"]]
    assert [each["topic"] for each in taken] == [each.topic for each in sent]
    assert [each["offset"] for each in taken] == [each.offset for each in sent]
    # As a service checks it.
    stated = dict(part.split("=") for part in service.headers["perdure-signature"].split(","))
    signed = f"{stated['t']}.".encode() + service.taken[-1]
    assert stated["v1"] == hmac.new(b"key", signed, hashlib.sha256).hexdigest()
    assert service.headers["idempotency-key"].endswith(f"-{taken[-1]['offset']}")
    await bench.close()
    await service.stop()


async def test_settings_that_cannot_be_used_are_refused_when_it_is_added() -> None:
    bench = Bench({"type": "webhook", "url": "ftp://x"})
    with pytest.raises(ConfigError, match="no URL of HTTP"):
        await bench.run()
    await bench.close()
    assert bind_settings("x", {"type": "webhook", "url": "http://x"})
