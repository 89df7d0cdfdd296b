"""A webhook whose service fails in every way."""

from __future__ import annotations

import hashlib
import hmac
import json
import random

import pytest

from perdure.errors import ConfigError
from perdure.forwarders.definitions import bind_settings
from perdure.forwarders.mapping import user_properties
from perdure.model import Message
from tests.support.failing_service import FAILURES, FailingService
from tests.support.forwarder_bench import NAME, Bench


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


async def test_refused_messages_are_found_at_a_service_that_fails_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is found is not looked for again: with 15 requests from the beginning and each sixth of
    them without an answer it would never come to an end."""
    monkeypatch.setattr("perdure.forwarders.forwarder.RETRY_MIN_S", 0.01)
    service = FailingService(refused="bad")
    await service.start()
    service.plan = ["", "", "", "", "", "503"] * 1_000
    bench = Bench({"type": "webhook", "url": service.url, "retry_max_s": 1})
    await bench.publish(*[Message(f"t/{i}", b"bad", 1) for i in range(8)], Message("t/8", b"", 1))
    await bench.run()
    await bench.until(lambda: bench.forwarded() == 1)
    assert bench.forwarders.rows()[0].refused == 8
    dead = await bench.database.read(
        [f"$dead/{NAME}"], after_offset=0, until_offset=bench.database.last_offset, limit=100
    )
    assert [message.payload for message in dead.messages] == [b"bad"] * 8
    reasons = [dict(user_properties(message)) for message in dead.messages]
    assert [each["topic"] for each in reasons] == [f"t/{i}" for i in range(8)]
    [body] = service.taken
    assert [each["topic"] for each in json.loads(body)["messages"]] == ["t/8"]
    await bench.close()
    await service.stop()


async def test_settings_that_cannot_be_used_are_refused_when_it_is_added() -> None:
    bench = Bench({"type": "webhook", "url": "ftp://x"})
    with pytest.raises(ConfigError, match="no URL of HTTP"):
        await bench.run()
    await bench.close()
    assert bind_settings("x", {"type": "webhook", "url": "http://x"})
