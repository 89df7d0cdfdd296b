"""Changes of alarms, sent to a service that fails at first."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from perdure.errors import ConfigError
from perdure.server.alarms.webhook import QUEUE_MAX, TRIES_MAX, Webhook, read_secret
from tests.support.bounds import HANG_S

SECRET = b"0123456789abcdef0123456789abcdef"


class Service:
    """Answers with the codes that it is given, then with 204."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.got: list[tuple[str, bytes]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                service.got.append((self.headers.get("X-Perdure-Signature", ""), body))
                self.send_response(service.codes.pop(0) if service.codes else 204)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/alarms"


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    thread = Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


async def until(hook: Webhook, done: object) -> None:
    task = asyncio.create_task(hook.run())
    async with asyncio.timeout(HANG_S):
        while not done():  # type: ignore[operator]
            await asyncio.sleep(0.005)
    task.cancel()


async def test_it_is_signed_and_sent_until_it_is_taken(service: Service) -> None:
    service.codes = [500, 404]
    hook = Webhook(service.url, SECRET, pause_s=0.001)
    hook.put(b'{"alarm":"disk"}')
    hook.put(b"second")
    await until(hook, lambda: len(service.got) == 4)
    assert [body for _, body in service.got] == [b'{"alarm":"disk"}'] * 3 + [b"second"]
    found = re.fullmatch(r"t=(\d+),v1=([0-9a-f]{64})", service.got[0][0])
    assert found is not None
    signed = found[1].encode() + b'.{"alarm":"disk"}'
    assert hmac.new(SECRET, signed, hashlib.sha256).hexdigest() == found[2]
    assert hook.lost == 0


async def test_it_gives_up_and_goes_on(service: Service) -> None:
    service.codes = [500] * TRIES_MAX
    hook = Webhook(service.url, b"", pause_s=0.0001)
    hook.put(b"first")
    hook.put(b"second")
    await until(hook, lambda: len(service.got) == TRIES_MAX + 1)
    assert hook.lost == 1
    assert service.got[-1] == ("", b"second")


def test_what_waits_is_bounded() -> None:
    hook = Webhook("http://127.0.0.1:9/", b"")
    for number in range(QUEUE_MAX + 3):
        hook.put(str(number).encode())
    assert hook.lost == 3


def test_secrets(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(SECRET + b"\n")
    assert read_secret(str(file)) == SECRET
    assert read_secret("") == b""
    file.write_bytes(b"short")
    with pytest.raises(ConfigError, match="fewer than 32"):
        read_secret(str(file))
    with pytest.raises(ConfigError, match="No such file"):
        read_secret(str(tmp_path / "none"))
