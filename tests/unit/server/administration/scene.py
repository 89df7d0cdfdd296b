"""A broker that runs on a memory database, and its administration service."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import structlog

from perdure.admin.audit import AuditRecord
from perdure.admin.operation import Request
from perdure.admin.records.sessions import ListSessions
from perdure.admin.rights import Principal
from perdure.admin.table import operation_of
from perdure.broker.auth.authenticate import AnonymousPolicy, EnhancedMethods
from perdure.broker.auth.authorize import AllowAll
from perdure.broker.broker import Broker
from perdure.broker.connection.connection import Connection
from perdure.broker.runtime.stream import PeerInfo
from perdure.clock import Clock, SystemClock
from perdure.config.schema import Config
from perdure.config.schema.applications import ApplicationsConfig
from perdure.forwarders.applications import Applications
from perdure.forwarders.keeping import FileKeeper
from perdure.forwarders.service import ForwarderService
from perdure.model import Will
from perdure.mqtt.encode import encode
from perdure.mqtt.packets import (
    Connect,
    Disconnect,
    Packet,
    Properties,
    Subscribe,
    SubscribeFilter,
)
from perdure.observe import Metrics
from perdure.server.administration.assembly import Administration
from perdure.server.administration.service import Call
from perdure.server.bans import BanKeeper
from perdure.server.scheduler import LoopScheduler
from perdure.storage.memory import MemoryDatabase
from tests.support.bounds import HANG_S

ADMIN = Principal("eva", "admin", source="token", peer="192.0.2.1")
PEER = PeerInfo("tcp", "tcp", "127.0.0.1", 5, loopback=True)


class Client:
    """A connection of the broker and the bytes that it wrote."""

    def __init__(self, broker: Broker) -> None:
        self.written = bytearray()
        self.changed = asyncio.Event()
        self.connection: Connection = broker.connection(self, PEER)

    def write(self, data: bytes) -> None:
        self.written += data
        self.changed.set()

    def close(self) -> None:
        self.connection.connection_lost(None)

    def abort(self) -> None:
        self.connection.connection_lost(None)

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def write_buffer_size(self) -> int:
        return 0

    def has_ended(self) -> bool:
        return False

    async def send(self, packet: Packet) -> bytes:
        """Send a packet and wait for bytes."""
        self.written.clear()
        self.changed.clear()
        self.connection.receive(encode(packet, 5))
        await asyncio.wait_for(self.changed.wait(), HANG_S)
        return bytes(self.written)


class Wall(Clock):
    """The machine's clock, which can be set."""

    def __init__(self) -> None:
        self.set_by_us = 0

    def now_us(self) -> int:
        return SystemClock().now_us() + self.set_by_us

    def monotonic_us(self) -> int:
        return SystemClock().monotonic_us()


class Scene:
    """A broker on a memory database, and its admin handler."""

    def __init__(self, config: Config | None = None) -> None:
        config = config or Config()
        self.database = MemoryDatabase()
        self.errors: list[BaseException] = []
        self.wall = Wall()
        self.scheduler = LoopScheduler(asyncio.get_running_loop(), self.errors.append)
        self.broker = Broker(
            config,
            self.database,
            scheduler=self.scheduler,
            clock=self.wall,
            chance=random.Random(1),
            authenticator=AnonymousPolicy(),
            methods=EnhancedMethods(),
            authorizer=AllowAll(),
            metrics=Metrics(),
            log=structlog.get_logger(),
            version="1",
        )
        self.audited: list[AuditRecord] = []
        forwarders = ForwarderService(
            self.broker.services,
            {},
            keeper=FileKeeper(None),
            origin="scene",
            log=structlog.get_logger(),
        )
        applications = Applications(ApplicationsConfig())
        applications.use(forwarders)
        self.administration = Administration(
            self.broker.services,
            config,
            version="1",
            metrics=self.broker.services.metrics,
            bans=BanKeeper(self.broker.services.ban_enforcer, None, SystemClock()),
            is_superuser=lambda _: False,
            phase=lambda: "serving",
            forwarders=forwarders,
            applications=applications,
            audit=self,
        )

    async def record(self, record: AuditRecord) -> None:
        """The audit hook."""
        self.audited.append(record)

    async def ask(self, request: Request[Any], principal: Principal = ADMIN) -> Any:
        """The answer of the service, as it is on the socket.

        Raises:
            PerdureError: it refused.
        """
        raw = msgspec.json.encode(request)
        name = operation_of(type(request)).name
        result = await self.administration.service.answer(name, raw, Call(principal, "r1"))
        return msgspec.json.decode(msgspec.json.encode(result))

    async def connect(
        self, client_id: str, *, expiry_s: int = 0, subscribe: str = "", will: str = ""
    ) -> Client:
        client = Client(self.broker)
        properties = Properties(session_expiry_interval=expiry_s)
        last = Will(will, b"gone", 1, False) if will else None
        connect = Connect(5, True, 0, client_id, will=last, properties=properties)
        assert (await client.send(connect))[0] == 0x20
        if subscribe:
            request = Subscribe(1, [SubscribeFilter(subscribe, 1)])
            assert (await client.send(request))[0] == 0x90
        return client

    async def rows(self, prefix: str = "", state: str = "") -> list[tuple[str, str]]:
        asked = ListSessions(prefix=prefix, state=state or None)  # type: ignore[arg-type]
        page = await self.ask(asked)
        return [(row["client_id"], row["state"]) for row in page["items"]]


async def offline(scene: Scene, client_id: str, *, subscribe: str = "") -> None:
    """Leave a session behind."""
    client = await scene.connect(client_id, expiry_s=60, subscribe=subscribe)
    client.connection.receive(encode(Disconnect(0), 5))
    # The end of the turn, in which the session is written.
    scene.broker.services.pipeline.run()
