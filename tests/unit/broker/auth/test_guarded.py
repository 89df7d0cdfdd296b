"""What stands around a method: its bounds, its time, its counts."""

from __future__ import annotations

import asyncio

import pytest

from perdure.broker.auth.authenticate import AuthRequest, AuthResult
from perdure.broker.auth.guard import LoginGuard
from perdure.broker.auth.guarded import GuardedMethod
from perdure.broker.auth.method import (
    AuthMethod,
    MethodUnavailable,
    UnusableAnswer,
    allow,
    deny,
    ignore,
)
from perdure.config.schema import AuthConfig, LookupConfig, MethodConfig
from tests.unit.auth_methods.helpers import asking, make_context


class Toy(AuthMethod):
    """Answers as it is told, and waits until it may."""

    def __init__(self, result: AuthResult | Exception) -> None:
        self.result = result
        self.asked = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def authenticate(self, request: AuthRequest) -> AuthResult:
        self.asked += 1
        await self.gate.wait()
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def guarded(
    toy: Toy, settings: MethodConfig | None = None, **auth: int
) -> tuple[GuardedMethod, dict[tuple[str, ...], int]]:
    context = make_context("toy")
    guard = LoginGuard(AuthConfig(**auth))  # type: ignore[arg-type]
    return GuardedMethod(
        toy, settings or MethodConfig(), context, guard
    ), context.metrics.auth_checks


@pytest.mark.parametrize(
    ("result", "reason", "counted"),
    [
        (allow("ada"), 0x00, "allow"),
        (deny(), 0x86, "deny"),
        (deny(0x87), 0x87, "deny"),
        (ignore(), 0x87, "ignore"),
        (MethodUnavailable("away"), 0x88, "unavailable"),
    ],
)
async def test_answers_are_counted_and_named(
    result: AuthResult | Exception, reason: int, counted: str
) -> None:
    method, counts = guarded(Toy(result))
    answer = await method.authenticate(asking())
    assert (answer.reason_code, answer.method) == (reason, "toy")
    assert counts == {("toy", counted): 1}
    assert method.pending == 0


async def test_who_waits_too_long_is_refused() -> None:
    toy = Toy(allow("ada"))
    toy.gate.clear()
    method, counts = guarded(toy, MethodConfig(timeout_ms=1))
    assert (await method.authenticate(asking())).reason_code == 0x88
    assert counts == {("toy", "unavailable"): 1}


@pytest.mark.parametrize(
    ("settings", "auth", "reason", "limit"),
    [
        (MethodConfig(pending_max=2), {}, 0x89, "auth.toy.pending_max"),
        (
            MethodConfig(),
            {"verify_pending_per_address_max": 2},
            0x97,
            "auth.verify_pending_per_address_max",
        ),
    ],
)
async def test_what_waits_is_bounded(
    settings: MethodConfig, auth: dict[str, int], reason: int, limit: str
) -> None:
    toy = Toy(allow("ada"))
    toy.gate.clear()
    method, counts = guarded(toy, settings, **auth)
    waiting = [asyncio.ensure_future(method.authenticate(asking())) for _ in range(2)]
    await asyncio.sleep(0)
    refused = await method.authenticate(asking())
    assert (refused.reason_code, refused.limit) == (reason, limit)
    toy.gate.set()
    assert all(result.ok for result in await asyncio.gather(*waiting))
    assert (await method.authenticate(asking())).ok
    assert counts == {("toy", "busy"): 1, ("toy", "allow"): 3}


async def test_a_question_goes_on_when_its_client_hangs_up() -> None:
    toy = Toy(allow("ada"))
    toy.gate.clear()
    method, counts = guarded(toy)
    client = asyncio.ensure_future(method.authenticate(asking()))
    await asyncio.sleep(0)
    client.cancel()
    await asyncio.gather(client, return_exceptions=True)
    assert method.pending == 1
    toy.gate.set()
    assert (await method.authenticate(asking())).ok
    assert method.pending == 0
    assert counts == {("toy", "allow"): 2}


async def test_a_close_ends_what_waits() -> None:
    toy = Toy(allow("ada"))
    toy.gate.clear()
    method, _ = guarded(toy)
    client = asyncio.ensure_future(method.authenticate(asking()))
    await asyncio.sleep(0)
    await method.close()
    assert method.pending == 0
    await asyncio.gather(client, return_exceptions=True)
    assert client.cancelled()


async def test_who_fails_too_often_is_not_asked_about() -> None:
    toy = Toy(deny())
    method, counts = guarded(toy, failures_max=3)
    answers = [await method.authenticate(asking()) for _ in range(3)]
    assert [answer.ban is not None for answer in answers] == [False, False, True]
    toy.result = allow("ada")
    banned = await method.authenticate(asking())
    assert (banned.reason_code, banned.limit) == (0x8A, "auth.failures_max")
    assert counts == {("toy", "deny"): 3}
    assert (await method.authenticate(asking("bob"))).ok


async def test_what_cannot_be_used_of_one_client_is_no_outage() -> None:
    settings = LookupConfig(breaker_failures=2)
    for error, asked in ((UnusableAnswer("his rules"), 5), (MethodUnavailable("away"), 2)):
        toy = Toy(error)
        method, _ = guarded(toy, settings)
        answers = [await method.authenticate(asking()) for _ in range(5)]
        assert [answer.reason_code for answer in answers] == [0x88] * 5
        assert toy.asked == asked


async def test_not_allowed_is_no_guess() -> None:
    method, _ = guarded(Toy(deny(0x87)), failures_max=1)
    assert [(await method.authenticate(asking())).reason_code for _ in range(3)] == [0x87] * 3
