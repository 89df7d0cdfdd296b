"""Start, serve, drain and stop, with real sockets, real signals and recording parts."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.broker.runtime.stream import ByteStream, PeerInfo
from perdure.config.schema import LimitsConfig
from perdure.errors import AddressUnavailable, ConfigError, StorageUnavailable
from perdure.net.admission import Admission
from perdure.net.listener import Listener
from perdure.net.settings import ListenerSettings
from perdure.server.lifecycle import Lifecycle
from perdure.server.systemd import Notifier
from tests.support.bounds import HANG_S


class RecordingPart:
    def __init__(self, name: str, events: list[str]) -> None:
        self.name = name
        self.events = events
        self.on_start: Callable[[], None] = lambda: None
        self.on_stop: Callable[[], None] = lambda: None

    async def start(self) -> None:
        self.on_start()
        self.events.append(f"start {self.name}")

    async def stop(self) -> None:
        self.events.append(f"stop {self.name}")
        self.on_stop()


class Client:
    """The server's side of a client: echoes, and takes its leave when asked to."""

    def __init__(self, stream: ByteStream, events: list[str]) -> None:
        self.stream = stream
        self.events = events

    def receive(self, data: bytes) -> None:
        self.stream.write(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.events.append("lost")

    def pause_writing(self) -> None:
        raise AssertionError

    def resume_writing(self) -> None:
        raise AssertionError

    def close(self, reason_code: int) -> None:
        self.events.append(f"close {reason_code:#x}")
        self.stream.write(bytes([0xE0, 1, reason_code]))
        self.stream.close()


class Rig:
    def __init__(self) -> None:
        self.events: list[str] = []
        self.storage = RecordingPart("storage", self.events)
        self.broker = RecordingPart("broker", self.events)
        self.ready = asyncio.Event()
        self.admission = Admission(LimitsConfig())

    def listener(self, port: int = 0, **changes: Any) -> Listener:
        settings = ListenerSettings(name="test", kind="tcp", host="127.0.0.1", port=port, **changes)
        return Listener(settings, self.connect, admission=self.admission)

    def connect(self, stream: ByteStream, peer: PeerInfo) -> Client:
        return Client(stream, self.events)

    def lifecycle(self, *listeners: Listener, **options: Any) -> Lifecycle:
        return Lifecycle([self.storage, self.broker], listeners, on_ready=self.ready.set, **options)


def stop_by_signal() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


async def test_clients_are_served_between_the_parts_and_told_to_go() -> None:
    rig = Rig()
    listener = rig.listener()
    running = asyncio.create_task(rig.lifecycle(listener).run())
    await rig.ready.wait()
    assert rig.events == ["start storage", "start broker"]
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(b"ping")
    assert await reader.readexactly(4) == b"ping"
    stop_by_signal()
    assert await reader.read() == b"\xe0\x01\x8b"
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", listener.port)
    assert not running.done()
    writer.close()
    await asyncio.wait_for(running, HANG_S)
    assert rig.events[2:] == ["close 0x8b", "lost", "stop broker", "stop storage"]


class SlowPart(RecordingPart):
    """It has more to do when it has started."""

    def __init__(self, events: list[str]) -> None:
        super().__init__("slow", events)
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def settle(self) -> None:
        await self.done
        self.events.append("settled")


async def _until_served(port: int) -> None:
    """A client is served."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"ping")
    assert await asyncio.wait_for(reader.readexactly(4), HANG_S) == b"ping"
    writer.close()


async def test_clients_do_not_wait_for_what_is_started_beside_the_broker() -> None:
    rig = Rig()
    slow, listener = SlowPart(rig.events), rig.listener()
    running = asyncio.create_task(
        Lifecycle([rig.storage, slow], [listener], on_ready=rig.ready.set).run()
    )
    async with asyncio.timeout(HANG_S):
        while "start slow" not in rig.events or not listener.addresses:
            await asyncio.sleep(0)
    await _until_served(listener.port)
    assert not rig.ready.is_set(), "nobody is told before all is there"
    slow.done.set_result(None)
    await rig.ready.wait()
    stop_by_signal()
    await asyncio.wait_for(running, HANG_S)
    assert "settled" in rig.events


async def test_what_does_not_settle_ends_the_broker() -> None:
    rig = Rig()
    slow = SlowPart(rig.events)
    slow.done.set_exception(ConfigError("it ended", path="http"))
    with pytest.raises(ConfigError, match="it ended"):
        await Lifecycle([rig.storage, slow], [rig.listener()], on_ready=rig.ready.set).run()
    assert rig.events[-2:] == ["stop slow", "stop storage"]
    assert not rig.ready.is_set()


async def test_clients_that_stay_are_cut_off() -> None:
    rig = Rig()
    listener = rig.listener()
    running = asyncio.create_task(rig.lifecycle(listener, drain_timeout_s=0.02).run())
    await rig.ready.wait()
    with socket.create_connection(("127.0.0.1", listener.port)) as client:
        client.sendall(b"ping")
        while not has_answer(client):
            await asyncio.sleep(0)
        stop_by_signal()
        await asyncio.wait_for(running, HANG_S)
    assert rig.events[-4:] == ["close 0x8b", "lost", "stop broker", "stop storage"]


def has_answer(client: socket.socket) -> bool:
    try:
        return bool(client.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK))
    except BlockingIOError:
        return False


async def test_jobs_run_while_serving_and_end_before_the_parts() -> None:
    rig = Rig()

    async def job() -> None:
        rig.events.append("job")
        try:
            await asyncio.Event().wait()
        finally:
            rig.events.append("job over")

    async def short_job() -> None:
        rig.events.append("short job")

    lifecycle = rig.lifecycle(rig.listener(), jobs={"job": job, "short": short_job})
    running = asyncio.create_task(lifecycle.run())
    await rig.ready.wait()
    stop_by_signal()
    await asyncio.wait_for(running, HANG_S)
    assert rig.events[2:] == ["job", "short job", "job over", "stop broker", "stop storage"]


async def test_a_failing_job_stops_the_broker() -> None:
    rig = Rig()
    listener = rig.listener()

    async def job() -> None:
        raise StorageUnavailable("the disk went away")

    with pytest.raises(StorageUnavailable):
        await rig.lifecycle(listener, jobs={"job": job}).run()
    assert rig.events[-2:] == ["stop broker", "stop storage"]
    assert not listener.accepting
    with pytest.raises(BaseExceptionGroup) as failure:
        await rig.lifecycle(listener, jobs={"one": job, "two": job}).run()
    assert len(failure.value.exceptions) == 2


async def test_a_part_that_does_not_start_ends_those_before_it() -> None:
    rig = Rig()

    def fail() -> None:
        raise StorageUnavailable("no disk")

    rig.broker.on_start = fail
    listener = rig.listener()
    with pytest.raises(StorageUnavailable):
        await rig.lifecycle(listener).run()
    assert rig.events == ["start storage", "stop storage"]
    assert not rig.ready.is_set()
    assert not listener.accepting


async def test_a_port_that_is_taken_ends_the_start() -> None:
    rig = Rig()
    taken = rig.listener()
    taken.start()
    with pytest.raises(AddressUnavailable):
        await rig.lifecycle(rig.listener(), rig.listener(taken.port)).run()
    assert rig.events[-2:] == ["stop broker", "stop storage"]
    assert not rig.ready.is_set()
    await taken.close()


async def test_a_signal_during_the_start_is_obeyed_before_serving() -> None:
    rig = Rig()
    gate = asyncio.Event()

    async def slow_start() -> None:
        rig.events.append("start storage")
        stop_by_signal()
        await asyncio.wait_for(gate.wait(), HANG_S)

    rig.storage.start = slow_start  # type: ignore[method-assign]
    running = asyncio.create_task(rig.lifecycle(rig.listener()).run())
    asyncio.get_running_loop().call_later(0.05, gate.set)
    await asyncio.wait_for(running, HANG_S)
    assert rig.events == ["start storage", "stop storage"]


async def test_a_part_that_does_not_stop_does_not_keep_the_others() -> None:
    rig = Rig()

    def fail() -> None:
        raise RuntimeError("stuck")

    rig.broker.on_stop = fail
    running = asyncio.create_task(rig.lifecycle(rig.listener()).run())
    await rig.ready.wait()
    stop_by_signal()
    with pytest.raises(RuntimeError, match="stuck"):
        await asyncio.wait_for(running, HANG_S)
    assert rig.events[-2:] == ["stop broker", "stop storage"]


class Manager:
    """A service manager that remembers what it was told."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.setblocking(False)
        self.heard: list[str] = []

    def listen(self) -> None:
        self.heard.append(self.socket.recv(200).split(b"\n")[0].decode())

    async def until(self, line: str) -> None:
        async with asyncio.timeout(HANG_S):
            while line not in self.heard:
                await asyncio.sleep(0)
        self.heard.clear()


async def test_the_service_manager_follows(tmp_path: Path) -> None:
    rig = Rig()
    manager = Manager(tmp_path / "notify")
    loop = asyncio.get_running_loop()
    loop.add_reader(manager.socket.fileno(), manager.listen)
    notifier = Notifier(str(tmp_path / "notify"), watchdog_interval_s=0.001)
    running = asyncio.create_task(rig.lifecycle(rig.listener(), notifier=notifier).run())
    await manager.until("READY=1")
    await manager.until("WATCHDOG=1")
    await manager.until("WATCHDOG=1")
    os.kill(os.getpid(), signal.SIGHUP)
    await manager.until("RELOADING=1")
    stop_by_signal()
    await manager.until("STOPPING=1")
    await asyncio.wait_for(running, HANG_S)
    loop.remove_reader(manager.socket.fileno())
    manager.socket.close()


async def test_reload_runs_every_hook_whatever_one_says(tmp_path: Path) -> None:
    rig = Rig()
    manager = Manager(tmp_path / "notify")
    calls: list[str] = []

    def broken() -> None:
        calls.append("broken")
        raise ConfigError("no such file", path="listeners.tls.certificate")

    def unforeseen() -> None:
        calls.append("unforeseen")
        raise ValueError("a bug")

    reloads = {
        "certificates": broken,
        "more": unforeseen,
        "access": lambda: calls.append("access"),
    }
    notifier = Notifier(str(tmp_path / "notify"))
    rig.lifecycle(rig.listener(), reloads=reloads, notifier=notifier).reload()
    assert calls == ["broken", "unforeseen", "access"]
    manager.listen()
    manager.listen()
    assert manager.heard == ["RELOADING=1", "READY=1"]
    manager.socket.close()
