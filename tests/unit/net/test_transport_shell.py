"""What both shells do with their transport, on one that only writes down what it is told."""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias, final

import pytest

from perdure.broker.runtime.stream import PeerInfo
from perdure.net.settings import ListenerSettings
from perdure.net.shell import NO_HANDLER
from perdure.net.tcp import TcpShell
from perdure.net.websocket import WebSocketShell
from tests.unit.net.helpers import Recorder

ShellType: TypeAlias = type[TcpShell] | type[WebSocketShell]
BOTH = pytest.mark.parametrize("kind", [TcpShell, WebSocketShell])
PEER = PeerInfo("test", "tcp", "127.0.0.1", 4711, True)


@final
class FakeTransport:
    def __init__(self) -> None:
        self.told: list[str] = []
        self.limits: tuple[int, int] = (0, 0)
        self.is_leaving = False

    def set_write_buffer_limits(self, *, high: int, low: int) -> None:
        self.limits = (high, low)

    def get_write_buffer_size(self) -> int:
        return 7

    def get_extra_info(self, name: str) -> None:
        assert name in {"peercert", "ssl_object"}

    def is_closing(self) -> bool:
        return self.is_leaving

    def abort(self) -> None:
        self.told.append("abort")

    def pause_reading(self) -> None:
        self.told.append("pause")

    def resume_reading(self) -> None:
        self.told.append("resume")


@final
class FakeOwner:
    def __init__(self) -> None:
        self.told: list[str] = []

    def shell_lost(self, shell: Any) -> None:
        assert shell.handler is NO_HANDLER
        self.told.append("lost")

    def handshake_failed(self, shell: Any, reason: str) -> None:
        self.told.append(reason)

    def shell_failed(self, shell: Any, error: Exception) -> None:
        self.told.append(f"failed: {error}")


@final
class Case:
    """A shell, and what stands on its sides."""

    def __init__(self, kind: ShellType, factory: Any = Recorder) -> None:
        self.transport = FakeTransport()
        self.owner = FakeOwner()
        settings = ListenerSettings(
            name="test",
            kind="tcp",
            host="127.0.0.1",
            port=1883,
            write_high_bytes=90,
            write_low_bytes=30,
        )
        self.shell = kind(
            factory,
            PEER,
            settings=settings,
            owner=self.owner,
            loop=asyncio.get_running_loop(),
        )

    def connect(self) -> None:
        self.shell.connection_made(self.transport)  # type: ignore[arg-type]


@BOTH
async def test_a_transport_gets_its_water_marks(kind: ShellType) -> None:
    case = Case(kind)
    assert not case.shell.connected
    case.connect()
    assert case.shell.connected
    assert case.transport.limits == (90, 30)
    assert case.shell.write_buffer_size() == 7
    case.shell.connection_lost(None)
    assert case.shell.write_buffer_size() == 0


@BOTH
async def test_who_was_aborted_before_takes_no_transport(kind: ShellType) -> None:
    case = Case(kind)
    case.shell.abort()
    case.connect()
    assert case.transport.told == ["abort"]
    assert case.transport.limits == (0, 0)
    assert case.shell.handler is NO_HANDLER


@BOTH
async def test_its_loss_is_told_once(kind: ShellType) -> None:
    case = Case(kind)
    case.connect()
    case.shell.connection_lost(None)
    case.shell.connection_lost(OSError("again"))
    case.shell.abort()
    assert case.owner.told[-1:] == ["lost"]
    assert case.owner.told.count("lost") == 1
    assert case.transport.told == []


@BOTH
async def test_reading_is_paused_while_it_is_open(kind: ShellType) -> None:
    case = Case(kind)
    case.connect()
    case.shell.pause_reading()
    case.shell.resume_reading()
    assert case.transport.told == ["pause", "resume"]
    case.transport.is_leaving = True
    case.shell.pause_reading()
    case.shell.resume_reading()
    assert case.transport.told == ["pause", "resume"]
    case.shell.connection_lost(None)


async def test_a_connection_that_fails_at_its_end_hides_no_loss() -> None:
    class Failing(Recorder):
        def connection_lost(self, exc: BaseException | None) -> None:
            raise RuntimeError("at the end")

    case = Case(TcpShell, Failing)
    case.connect()
    case.shell.connection_lost(None)
    assert case.owner.told == ["failed: at the end", "lost"]


async def test_a_connection_that_cannot_be_made_leaves_no_socket() -> None:
    def broken(_stream: object, _peer: object) -> Recorder:
        raise RuntimeError("no connection")

    case = Case(TcpShell, broken)
    case.connect()
    assert case.owner.told == ["failed: no connection"]
    assert case.transport.told == ["abort"]


@pytest.mark.parametrize("step", ["receive", "pause_writing", "resume_writing"])
async def test_a_step_that_fails_costs_the_connection_and_is_reported(step: str) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a defect")

    case = Case(TcpShell)
    case.connect()
    setattr(case.shell.handler, step, broken)
    if step == "receive":
        case.shell.data_received(b"x")
    else:
        getattr(case.shell, step)()
    assert case.owner.told == ["failed: a defect"]
    assert case.transport.told == ["abort"]
    case.shell.connection_lost(None)


async def test_a_websocket_that_was_never_opened_is_a_failed_handshake() -> None:
    case = Case(WebSocketShell)
    case.connect()
    case.shell.connection_lost(None)
    assert case.owner.told == ["no WebSocket handshake", "lost"]
