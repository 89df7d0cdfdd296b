"""Servers that are named are asked whether they answer; nothing is claimed there."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from perdure.auth_methods import http as http_method
from perdure.config.load import load
from perdure.config.schema import Config
from perdure.server.answering import ask, named
from tests import servers

pytestmark = pytest.mark.asyncio


def configured(*sets: str) -> Config:
    return load(None, environ={}, sets=sets, overrides=[]).config


def of_redis(url: str, *more: str) -> Config:
    return configured(
        "storage.backend=redis",
        f"storage.redis.url={url}",
        f"storage.redis.prefix={servers.redis_prefix()}",
        "auth.chain=[redis]",
        f"auth.redis.url={url}",
        "auth.redis.user_key=user:%u",
        f"registry.url={url}",
        *more,
    )


async def test_nobody_is_named(tmp_path: Path) -> None:
    config = configured(f"storage.path={tmp_path}")
    assert named(config) == []
    assert await ask(config) == []
    (tmp_path / "key").write_text("k" * 40)
    with_key = configured(
        "auth.chain=[jwt]", f"auth.jwt.secret_file={tmp_path}/key", "auth.jwt.algorithms=[HS256]"
    )
    assert named(with_key) == []


@pytest.mark.redis
async def test_redis_answers_and_keeps_nothing_of_it() -> None:
    config = of_redis(servers.redis().url)
    assert named(config) == ["storage.redis", "auth.redis", "registry.url"]
    assert await ask(config) == []
    assert await ask(config) == []  # no lease was taken


@pytest.mark.redis
async def test_a_start_would_refuse_its_settings() -> None:
    config = of_redis(servers.redis().url, "storage.redis.durability=refuse")
    found = await ask(config)
    assert [(each.path, each.severity) for each in found] in (
        [],  # the server of this run keeps what it acknowledges
        [("storage.redis.durability", "problem")],
        [("storage.redis", "problem")],
    )


@pytest.mark.postgres
async def test_a_query_that_the_server_does_not_take() -> None:
    url = servers.postgres().url
    config = configured(
        "auth.chain=[postgres]",
        f"auth.postgres.url={url}",
        "auth.postgres.user_query=SELECT password_hash FROM no_such_table WHERE name = $1",
    )
    [found] = await ask(config)
    assert (found.path, found.severity) == ("auth.postgres", "warning")
    assert "no_such_table" in found.message
    works = configured(
        "storage.backend=postgres",
        f"storage.postgres.url={url}",
        "auth.chain=[postgres]",
        f"auth.postgres.url={url}",
        "auth.postgres.user_query=SELECT $1::text AS password_hash WHERE false",
    )
    assert await ask(works) == []


async def test_a_service_is_reached_and_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(f"{request.method} {request.url}")
        if request.url.path == "/acl":
            raise httpx.ConnectError("nobody is there", request=request)
        return httpx.Response(405)

    client = httpx.AsyncClient
    monkeypatch.setattr(
        http_method.httpx,
        "AsyncClient",
        lambda **given: client(**{**given, "transport": httpx.MockTransport(answer)}),
    )
    config = configured(
        "auth.chain=[http]",
        "auth.http.url=http://users.test/login",
        "auth.http.acl_url=http://users.test/acl",
    )
    [found] = await ask(config)
    assert asked == ["HEAD http://users.test/login", "HEAD http://users.test/acl"]
    assert (found.path, found.severity) == ("auth.http", "warning")
    assert "nobody is there" in found.message
