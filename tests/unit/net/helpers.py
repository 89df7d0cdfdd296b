"""A recording connection, a bench of listeners, and certificates."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from perdure.broker.runtime.stream import ByteStream, PeerInfo
from perdure.config.schema import LimitsConfig
from perdure.net.admission import Admission
from perdure.net.listener import Listener
from perdure.net.settings import ListenerSettings, TlsSettings
from perdure.observe.metrics import Metrics
from tests.support.bounds import HANG_S


class Recorder:
    """A connection that remembers what its shell told it and lets a test wait for it."""

    def __init__(self, stream: ByteStream, peer: PeerInfo, *, echo: bool = False) -> None:
        self.stream = stream
        self.peer = peer
        self.echo = echo
        self.received = b""
        self.chunks: list[bytes] = []
        self.writing_paused = False
        self.pauses = 0
        self.stop_after = 0
        """Pieces after which it wants to be given nothing more; 0 = never."""
        self.lost: list[BaseException | None] = []
        self.reason_codes: list[int] = []
        self._changed = asyncio.Event()

    def receive(self, data: bytes) -> None:
        assert not self.lost
        assert type(data) is bytes
        self.received += data
        self.chunks.append(data)
        if len(self.chunks) == self.stop_after:
            self.stream.pause_reading()
        if self.echo:
            self.stream.write(data)
        self._changed.set()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost.append(exc)
        self._changed.set()

    def pause_writing(self) -> None:
        self.writing_paused = True
        self.pauses += 1
        self._changed.set()

    def resume_writing(self) -> None:
        self.writing_paused = False
        self._changed.set()

    def close(self, reason_code: int) -> None:
        self.reason_codes.append(reason_code)
        self.stream.write(bytes([0xE0, 1, reason_code]))
        self.stream.close()

    async def until(self, condition: Callable[[Recorder], object]) -> None:
        async with asyncio.timeout(HANG_S):
            while not condition(self):
                self._changed.clear()
                await self._changed.wait()


class Bench:
    """Starts listeners with recording connections and takes them down again."""

    def __init__(self) -> None:
        self.admission = Admission(LimitsConfig())
        self.metrics = Metrics()
        self.listeners: list[Listener] = []
        self.connections: list[Recorder] = []
        self.echo = False
        self._connected = asyncio.Event()

    def make(self, stream: ByteStream, peer: PeerInfo) -> Recorder:
        connection = Recorder(stream, peer, echo=self.echo)
        self.connections.append(connection)
        self._connected.set()
        return connection

    def listen(self, kind: Any = "tcp", *, factory: Any = None, **changes: Any) -> Listener:
        values: dict[str, Any] = {"name": "test", "host": "127.0.0.1", "port": 0} | changes
        settings = ListenerSettings(kind=kind, **values)
        listener = Listener(
            settings, factory or self.make, admission=self.admission, metrics=self.metrics
        )
        listener.start()
        self.listeners.append(listener)
        return listener

    async def connection(self, index: int = 0) -> Recorder:
        async with asyncio.timeout(HANG_S):
            while len(self.connections) <= index:
                self._connected.clear()
                await self._connected.wait()
        return self.connections[index]


@dataclass(frozen=True)
class Certificates:
    """PEM files of a small public key infrastructure."""

    folder: Path

    def __getitem__(self, name: str) -> str:
        return str(self.folder / name)

    def tls(self, **changes: Any) -> TlsSettings:
        values: dict[str, Any] = {
            "certificate": self["server.pem"],
            "private_key": self["server.key"],
        }
        return TlsSettings(**(values | changes))


Issuer = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def issue(folder: Path, name: str, common_name: str, issuer: Issuer | None = None) -> Issuer:
    """Write ``name.pem`` and ``name.key``; an authority when nobody issues it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    now = dt.datetime.now(dt.UTC)
    signer = key if issuer is None else issuer[1]
    issuer_name = subject if issuer is None else issuer[0].subject
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer_name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
            ),
            critical=False,
        )
    )
    certificate = builder.sign(signer, hashes.SHA256())
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    (folder / f"{name}.pem").write_bytes(pem)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (folder / f"{name}.key").write_bytes(private)
    return certificate, key
