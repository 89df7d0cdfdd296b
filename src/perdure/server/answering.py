"""Whether the servers that a configuration names answer: ``perdure config check --connect``.

A start does not ask first: it waits for the storage server and then ends, and goes on without the
others, for what is away may come. So a storage server that does not answer is a problem, and every
other a warning. Nothing is claimed or changed, and a broker may run meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from perdure.broker.auth.method import MethodUnavailable
from perdure.config.schema import Config
from perdure.config.schema.auth_methods import JwtConfig
from perdure.errors import PerdureError
from perdure.observe.metrics import Metrics
from perdure.server.auth_part import AuthPart, names_in_use
from perdure.server.preflight import Finding, Severity
from perdure.server.stores import make_driver

ANSWER_S: Final = 10.0
"""How long one server may take."""


class _Asked(NamedTuple):
    """A server, how it is asked, and what it means that it does not answer."""

    path: str
    probe: Callable[[], Awaitable[None]]
    severity: Severity
    meaning: str


def named(config: Config) -> list[str]:
    """The settings that name servers which can be asked."""
    return [
        *([f"storage.{config.storage.backend}"] if config.storage.traits.is_server else []),
        *(f"auth.{name}" for name in names_in_use(config) if _asks(name, config)),
        *(["registry.url"] if config.registry.url else []),
    ]


def _asks(name: str, config: Config) -> bool:
    settings = config.auth.method(name)
    return not isinstance(settings, JwtConfig) or bool(settings.jwks_url)  # else it has a file


async def ask(config: Config) -> list[Finding]:
    """Ask every server, one after the other.

    Args:
        config: in which ``preflight.look`` has found no problem.
    """
    methods = AuthPart(config, Metrics())
    try:
        asked = [*_storage(config), *_methods(methods), *_registry(config)]
        found = [await _ask(each) for each in asked]
    finally:
        await methods.stop()
    return [each for each in found if each is not None]


async def _ask(asked: _Asked) -> Finding | None:
    try:
        async with asyncio.timeout(ANSWER_S):
            await asked.probe()
    except TimeoutError:
        text = f"no answer within {ANSWER_S:g} s"
    except MethodUnavailable as error:
        text = str(error)
    except PerdureError as error:
        return Finding(
            getattr(error, "path", "") or asked.path,
            error.message,
            error.hint or asked.meaning,
            asked.severity,
        )
    else:
        return None
    return Finding(asked.path, text, asked.meaning, asked.severity)


def _storage(config: Config) -> list[_Asked]:
    if not config.storage.traits.is_server:
        return []
    driver = make_driver(config.storage, "preflight")
    meaning = f"a start waits {config.storage.server.connect_timeout_s} s for it, and then ends"
    return [_Asked(f"storage.{config.storage.backend}", driver.probe, "problem", meaning)]


def _methods(methods: AuthPart) -> list[_Asked]:
    meaning = "a start does not wait for it; its clients are refused until it answers"
    return [
        _Asked(f"auth.{name}", guarded.method.probe, "warning", meaning)
        for name, guarded in methods.methods.items()
    ]


def _registry(config: Config) -> list[_Asked]:
    if not config.registry.url:
        return []

    async def probe() -> None:
        # The driver is an extra.
        from perdure.storage.redis.client import RedisClient
        from perdure.storage.redis.url import parse_url

        client = await RedisClient.connect(parse_url(config.registry.url))
        await client.close()

    meaning = "a start does not wait for it; clients are mirrored when it answers"
    return [_Asked("registry.url", probe, "warning", meaning)]
