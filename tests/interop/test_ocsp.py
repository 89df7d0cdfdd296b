"""Client certificates on a TLS listener, asked about at the responder of OpenSSL."""

from __future__ import annotations

import asyncio
import datetime as dt
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from cryptography import x509

from perdure.bench.ports import free_port
from perdure.errors import MqttError
from perdure.mqtt.client_protocol import ClientProtocol
from perdure.net.client import Client
from perdure.net.client_link import Endpoint
from perdure.net.tls import client_context
from tests.support.bounds import HANG_S
from tests.support.needs import missing
from tests.support.process import POLL_S, BrokerProcess, perdure_command
from tests.unit.net.helpers import issue

pytestmark = [pytest.mark.slow]


class Scene:
    """An authority with its responder, and a broker that asks it."""

    def __init__(self, home: Path) -> None:
        program = shutil.which("openssl")
        if program is None:
            missing("OpenSSL's program is not installed")
        self.home = home
        self.authority = issue(home, "ca", "Test authority")
        issue(home, "server", "localhost", self.authority)
        self.clients = {
            name: issue(home, name, name, self.authority)[0] for name in ("good", "gone", "unknown")
        }
        self.write_index()
        self.responder_port, self.port = free_port(), free_port()
        # The listener that is waited for, beside that of TLS.
        plain = free_port()
        self.responder = BrokerProcess(
            [program, "ocsp", "-port", str(self.responder_port), "-index", str(home / "index.txt"),
             "-CA", str(home / "ca.pem"), "-rsigner", str(home / "ca.pem"),
             "-rkey", str(home / "ca.key"), "-nmin", "60"],
            port=self.responder_port, log=home / "responder.log",
        )  # fmt: skip
        settings = {
            "listeners.tls.bind": f"127.0.0.1:{self.port}",
            "listeners.tls.certificate": home / "server.pem",
            "listeners.tls.private_key": home / "server.key",
            "listeners.tls.client_ca": home / "ca.pem",
            "listeners.tls.require_client_certificate": "true",
            "auth.chain": "[ocsp]",
            "auth.ocsp.issuer_file": home / "ca.pem",
            "auth.ocsp.url": f"http://127.0.0.1:{self.responder_port}/",
            "auth.ocsp.recheck_s": 0,
            "auth.ocsp.breaker_failures": 1000,
        }
        sets = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        self.broker = BrokerProcess(
            perdure_command(home / "data", plain, *sets), port=plain, log=home / "broker.log"
        )

    def write_index(self, *revoked: str) -> None:
        """What the authority says of its certificates; of ``unknown`` it says nothing."""
        now = f"{dt.datetime.now(dt.UTC):%y%m%d%H%M%SZ}"
        lines = []
        for name in ("good", "gone"):
            found = self.clients[name]
            ends = f"{found.not_valid_after_utc:%y%m%d%H%M%SZ}"
            state = f"R\t{ends}\t{now}" if name in revoked else f"V\t{ends}\t"
            lines.append(f"{state}\t{serial(found)}\tunknown\t/CN={name}\n")
        (self.home / "index.txt").write_text("".join(lines), encoding="ascii")

    async def start_responder(self) -> None:
        """Start it and wait for its word: a connection without a question would be its last."""
        log = self.home / "responder.log"
        log.write_bytes(b"")
        await self.responder.spawn()
        async with asyncio.timeout(HANG_S):
            while b"waiting for OCSP client connections" not in log.read_bytes():
                self.responder.check()
                await asyncio.sleep(POLL_S)

    async def connect(self, name: str) -> Client:
        """A client with its certificate."""
        context = client_context(
            cafile=str(self.home / "ca.pem"),
            certificate=str(self.home / f"{name}.pem"),
            private_key=str(self.home / f"{name}.key"),
        )
        endpoint = Endpoint(host="127.0.0.1", port=self.port, tls=context)
        client = Client(ClientProtocol(client_id=f"client-{name}"), endpoint)
        await client.connect(timeout_s=HANG_S)
        return client

    async def refusal(self, name: str) -> int:
        """The reason code with which a client is refused."""
        with pytest.raises(MqttError) as caught:
            await self.connect(name)
        return caught.value.reason_code


def serial(certificate: x509.Certificate) -> str:
    """As OpenSSL writes it: whole bytes."""
    text = f"{certificate.serial_number:X}"
    return text if len(text) % 2 == 0 else f"0{text}"


@pytest_asyncio.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    found = Scene(tmp_path)
    await found.start_responder()
    await found.broker.start()
    yield found
    await found.broker.stop()
    await found.responder.stop()


async def test_a_revocation_holds_for_who_comes_and_for_who_is_there(scene: Scene) -> None:
    good, gone = await scene.connect("good"), await scene.connect("gone")
    assert await scene.refusal("unknown") == 0x87
    scene.write_index("gone")
    await scene.responder.stop()
    await scene.start_responder()
    scene.broker.signal(signal.SIGHUP)
    async with asyncio.timeout(HANG_S):
        with pytest.raises(MqttError) as caught:
            await gone.next_batch()
    assert caught.value.reason_code == 0x87
    assert await scene.refusal("gone") == 0x87
    assert good.is_connected
    await good.publish("still", b"here", qos=1)
    await scene.responder.stop()
    # What is not remembered cannot be told now: nobody is let in, and nobody is sent away for it.
    assert await scene.refusal("unknown") == 0x88
    assert good.is_connected
    await good.disconnect()
