"""A service that is asked by HTTP: what it may answer, and what becomes of no answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure.auth_methods.http import HttpMethod, open_method
from perdure.broker.auth.grant import Grant, grant_of
from perdure.broker.auth.guard import LoginGuard
from perdure.broker.auth.guarded import GuardedMethod
from perdure.broker.auth.method import MethodUnavailable
from perdure.config.schema import AuthConfig
from perdure.config.schema.auth_methods import HttpAuthConfig
from perdure.errors import ConfigError
from tests.support.clock import VirtualClock
from tests.unit.auth_methods.helpers import asking, make_context


class Service:
    """Answers as it is told; remembers what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {"/auth": {"result": "allow"}}
        self.status = 200
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.headers: httpx.Headers | None = None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append((request.url.path, json.loads(request.content)))
        self.headers = request.headers
        answer = self.answers[request.url.path]
        if isinstance(answer, bytes):
            return httpx.Response(self.status, content=answer)
        return httpx.Response(self.status, json=answer)


Made = Callable[..., HttpMethod]


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def made(service: Service, clock: VirtualClock) -> AsyncIterator[Made]:
    methods: list[HttpMethod] = []

    def make(**changes: Any) -> HttpMethod:
        settings = HttpAuthConfig(**({"url": "http://auth/auth"} | changes))
        context = make_context("http", clock=clock)
        methods.append(HttpMethod(settings, context, httpx.MockTransport(service)))
        return methods[-1]

    yield make
    for method in methods:
        await method.close()


async def test_it_is_told_who_asks(made: Made, service: Service) -> None:
    result = await made().authenticate(asking("ada", "pw"))
    assert (result.ok, result.username, result.grant) == (True, "ada", None)
    assert (result.expires_us, result.recheck_us) == (0, 0)
    assert service.asked == [
        (
            "/auth",
            {
                "client_id": "c",
                "username": "ada",
                "password": "pw",
                "address": "192.0.2.7",
                "listener": "tcp",
                "protocol": 5,
                "certificate_subject": None,
            },
        )
    ]
    await made().authenticate(asking(None, b"\xff\x00"))
    assert service.asked[-1][1]["password_base64"] == "/wA="


@pytest.mark.parametrize(
    ("status", "answer", "expected"),
    [
        (200, {"result": "deny"}, (False, 0x86, False)),
        (401, b"", (False, 0x86, False)),
        (403, b"no", (False, 0x86, False)),
        (200, {"result": "ignore"}, (False, 0x87, True)),
        (200, {"result": "allow", "more": 1}, (True, 0, False)),
    ],
)
async def test_what_it_may_say(
    made: Made, service: Service, status: int, answer: Any, expected: tuple[bool, int, bool]
) -> None:
    service.status, service.answers["/auth"] = status, answer
    result = await made().authenticate(asking())
    assert (result.ok, result.reason_code, result.undecided) == expected


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (200, b""),
        (200, b"allow"),
        (200, b"\xff"),
        (200, b"[" * 100_000),
        (200, {"result": "yes"}),
        (200, {}),
        (200, []),
        (200, {"result": "allow", "username": 5}),
        (200, {"result": "allow", "username": "x" * 70_000}),
        (200, {"result": "allow", "username": "a\0b"}),
        (200, {"result": "allow", "superuser": "true"}),
        (200, {"result": "allow", "acl": ["fly x"]}),
        (200, {"result": "allow", "acl": "#"}),
        (200, {"result": "allow", "acl": ["read x"] * 1001}),
        (200, b'{"result":"allow"}' + b" " * 300_000),
        (204, b""),
        (302, {"result": "allow"}),
        (404, {"result": "allow"}),
        (500, {"result": "allow"}),
    ],
)
async def test_anything_else_lets_nobody_in(
    made: Made, service: Service, status: int, answer: Any
) -> None:
    service.status, service.answers["/auth"] = status, answer
    with pytest.raises(MethodUnavailable):
        await made().authenticate(asking())


async def test_a_service_that_is_not_there() -> None:
    def away(_request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    method = HttpMethod(
        HttpAuthConfig(url="http://auth/auth"), make_context("http"), httpx.MockTransport(away)
    )
    with pytest.raises(MethodUnavailable, match="refused"):
        await method.authenticate(asking())
    await method.close()


async def test_all_that_an_answer_may_hold(
    made: Made, service: Service, clock: VirtualClock
) -> None:
    clock.advance_us(1000)
    service.answers["/auth"] = {
        "result": "allow",
        "username": "ada.l",
        "superuser": True,
        "acl": ["read x/#"],
        "expires_in_s": 60,
    }
    result = await made().authenticate(asking())
    assert (result.username, result.superuser) == ("ada.l", True)
    assert result.grant == grant_of(["read x/#"], superuser=True)
    assert result.expires_us == 60_001_000


async def test_rights_are_asked_for_apart(
    made: Made, service: Service, clock: VirtualClock
) -> None:
    service.answers |= {
        "/auth": {"result": "allow", "username": "ada.l"},
        "/acl": {"result": "allow", "acl": {"sub": ["a"]}},
    }
    method = made(acl_url="http://auth/acl", recheck_s=60)
    result = await method.authenticate(asking())
    assert result.grant == grant_of(["read a"])
    assert result.recheck_us == 60_000_000
    path, said = service.asked[1]
    assert (path, said["username"], "password" in said) == ("/acl", "ada.l", False)
    service.answers["/acl"] = {"result": "allow"}
    clock.advance_us(5)
    renewed = await method.renew(asking("ada.l", None), result.proof)
    assert (renewed.ok, renewed.grant, renewed.recheck_us) == (True, Grant(), 60_000_005)
    service.answers["/acl"] = {"result": "deny"}
    assert (await method.renew(asking("ada.l", None), result.proof)).reason_code == 0x87
    assert (await method.authenticate(asking())).reason_code == 0x87
    service.answers["/acl"] = {"result": "ignore"}
    assert (await method.renew(asking("ada.l", None), result.proof)).undecided


async def test_without_an_acl_url_nothing_is_asked_again(made: Made, service: Service) -> None:
    assert (await made().renew(asking(), None)).undecided
    assert service.asked == []


async def test_a_yes_is_remembered_for_a_while(
    made: Made, service: Service, clock: VirtualClock
) -> None:
    method = made(cache_s=10, cache_max=2)
    for _ in range(3):
        assert (await method.authenticate(asking("ada", "pw"))).ok
    assert len(service.asked) == 1
    service.answers["/auth"] = {"result": "deny"}
    assert not (await method.authenticate(asking("ada", "other"))).ok
    assert not (await method.authenticate(asking("bob", "pw"))).ok
    assert (await method.authenticate(asking("ada", "pw"))).ok
    clock.advance_us(10_000_000)
    assert not (await method.authenticate(asking("ada", "pw"))).ok


async def test_what_is_remembered_is_bounded_and_can_be_forgotten(
    made: Made, service: Service
) -> None:
    service.answers["/acl"] = {"result": "allow"}
    method = made(cache_s=10, cache_max=2, acl_url="http://auth/acl")
    for user in ("a", "b", "c"):
        await method.authenticate(asking(user))
    service.asked.clear()
    for user in ("c", "b"):
        await method.authenticate(asking(user))
    assert [path for path, _ in service.asked] == ["/acl"] * 2
    await method.authenticate(asking("a"))
    assert service.asked[2][0] == "/auth"
    service.answers["/acl"] = {"result": "deny"}
    await method.renew(asking("a", None), None)
    service.answers["/auth"] = {"result": "deny"}
    assert (await method.authenticate(asking("a"))).reason_code == 0x86
    method.reload()
    assert (await method.authenticate(asking("c"))).reason_code == 0x86


async def test_what_ends_is_not_remembered(made: Made, service: Service) -> None:
    service.answers["/auth"] = {"result": "allow", "expires_in_s": 5}
    method = made(cache_s=10)
    for _ in range(2):
        await method.authenticate(asking())
    assert len(service.asked) == 2


async def test_headers_of_a_file(made: Made, service: Service, tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("# ours\nAuthorization: Bearer x:y\n\nX-Site: north\n")
    method = made(header_file=str(file))
    await method.authenticate(asking())
    assert service.headers is not None
    assert (service.headers["authorization"], service.headers["x-site"]) == ("Bearer x:y", "north")
    file.write_text("Authorization: Bearer z\n")
    method.reload()
    await method.authenticate(asking())
    assert service.headers["authorization"] == "Bearer z"
    file.write_text("nothing\n")
    with pytest.raises(ConfigError, match=":1: no header"):
        method.reload()


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({}, "auth.http.url"),
        ({"url": "auth.example"}, "auth.http.url"),
        ({"url": "file:///etc/passwd"}, "auth.http.url"),
        ({"url": "http://[::1"}, "auth.http.url"),
        ({"url": "http://a:b/"}, "auth.http.url"),
        ({"url": "http://a/", "acl_url": "x"}, "auth.http.acl_url"),
        ({"url": "http://a/", "header_file": "/nowhere"}, "auth.http.header_file"),
        ({"url": "http://a/", "ca_file": "/nowhere"}, "auth.http.ca_file"),
    ],
)
def test_settings_that_cannot_be_used(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_method(HttpAuthConfig(**fields), make_context("http"))
    assert caught.value.path == path


async def test_a_service_that_fails_is_left_alone(
    made: Made, service: Service, clock: VirtualClock
) -> None:
    settings = HttpAuthConfig(url="http://auth/auth", breaker_failures=2, breaker_s=10)
    context = make_context("http", clock=clock)
    method = GuardedMethod(
        HttpMethod(settings, context, httpx.MockTransport(service)),
        settings,
        context,
        LoginGuard(AuthConfig()),
    )
    state = context.metrics.auth_breaker_open
    service.status = 500
    for _ in range(5):
        assert (await method.authenticate(asking())).reason_code == 0x88
    assert len(service.asked) == 2
    assert state == {("http",): 1}
    clock.advance_us(10_000_000)
    service.status = 200
    assert (await method.authenticate(asking())).ok
    assert state == {("http",): 0}
    assert (await method.authenticate(asking())).ok
    assert len(service.asked) == 4
    await method.method.close()


async def test_on_a_real_connection(tmp_path: Path) -> None:
    """Several questions share connections; a body larger than a segment arrives."""
    asked = 0
    ended = asyncio.Semaphore(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        with contextlib.suppress(asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                body = json.loads(await reader.readexactly(length))
                asked += len(body["password"]) == 60_000
                writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 18\r\n\r\n{"result":"allow"}')
        writer.close()
        await writer.wait_closed()
        ended.release()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    settings = HttpAuthConfig(url=f"http://127.0.0.1:{port}/auth", connections_max=2)
    method = open_method(settings, make_context("http"))
    results = await asyncio.gather(
        *(method.authenticate(asking("ada", b"x" * 60_000)) for _ in range(10))
    )
    assert all(result.ok for result in results)
    assert asked == 10
    await method.close()
    await ended.acquire()
    await ended.acquire()
    server.close()
    await server.wait_closed()
