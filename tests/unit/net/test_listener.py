"""Listeners: bounds, counts, PROXY headers on every kind, stopping and closing."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from perdure.config.schema import LimitsConfig
from perdure.errors import AddressUnavailable
from perdure.net.listener import Listener
from perdure.net.records import MeteredTls
from perdure.net.settings import ListenerSettings
from perdure.net.tls import client_context
from perdure.server.listeners import open_listeners
from tests.support.bounds import HANG_S
from tests.unit.net.helpers import Bench, Certificates

HEADER = b"PROXY TCP4 203.0.113.7 192.0.2.1 56324 1883\r\n"


async def closed_by_peer(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


async def test_the_real_port_is_reported_and_kept(bench: Bench) -> None:
    listener = bench.listen()
    port = listener.port
    assert port > 0
    assert listener.addresses == [("127.0.0.1", port)]
    assert listener.accepting
    listener.start()
    assert listener.port == port
    listener.stop_accepting()
    listener.stop_accepting()
    assert not listener.accepting
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    listener.start()
    assert listener.port == port
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    await bench.connection()
    writer.close()


async def test_connections_outlive_the_listening_socket(bench: Bench) -> None:
    bench.echo = True
    listener = bench.listen()
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    await bench.connection()
    listener.stop_accepting()
    writer.write(b"ping")
    assert await reader.readexactly(4) == b"ping"
    assert listener.connections == 1
    writer.close()
    await listener.wait_idle()
    assert listener.connections == 0


async def test_a_full_listener_refuses_and_takes_the_next_when_one_left(bench: Bench) -> None:
    listener = bench.listen(connections_max=1)
    _, first = await asyncio.open_connection("127.0.0.1", listener.port)
    await bench.connection()
    reader, second = await asyncio.open_connection("127.0.0.1", listener.port)
    assert await closed_by_peer(reader)
    assert listener.stats.refused_total == 1
    assert listener.stats.opened_total == 1
    first.close()
    second.close()
    await listener.wait_idle()
    _, third = await asyncio.open_connection("127.0.0.1", listener.port)
    await bench.connection(1)
    third.close()


async def test_nobody_is_accepted_while_newcomers_crowd(bench: Bench) -> None:
    class Newcomer:
        is_closed = False

        def work_on(self) -> bool:
            return False

    listener = bench.listen()
    budget = listener.turn_budget
    budget.newcomers_max = 1
    budget._newcomers.append(first := Newcomer())  # which has no turn yet
    _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    async with asyncio.timeout(HANG_S):
        while listener._retry is None:
            await asyncio.sleep(0.001)
    assert (listener.connections, listener.stats.opened_total) == (0, 0)
    budget.add(first)
    await bench.connection()
    assert listener.connections == 1
    writer.close()


async def test_bounds_over_all_listeners(bench: Bench) -> None:
    bench.admission.configure(LimitsConfig(connections_max=1))
    one, two = bench.listen(), bench.listen()
    _, first = await asyncio.open_connection("127.0.0.1", one.port)
    await bench.connection()
    reader, second = await asyncio.open_connection("127.0.0.1", two.port)
    assert await closed_by_peer(reader)
    assert two.stats.refused_total == 1
    assert bench.admission.connections == 1
    first.close()
    second.close()


@pytest.mark.parametrize("kind", ["tls", "wss"])
async def test_a_connection_that_has_ended_keeps_no_tls_state(
    bench: Bench, certificates: Certificates, kind: str
) -> None:
    """A flood of handshakes would fill memory until the cycles of the connections are collected."""
    listener = bench.listen(kind, tls=certificates.tls())
    context = client_context(cafile=certificates["ca.pem"])
    gc.collect()
    gc.disable()
    try:
        if kind == "tls":
            _, writer = await asyncio.open_connection(
                "127.0.0.1", listener.port, ssl=context, server_hostname="localhost"
            )
            await bench.connection()
            assert len(tls_alive()) == 1
            writer.close()
        else:
            async with connect(
                f"wss://localhost:{listener.port}/mqtt",
                ssl=context,
                subprotocols=[Subprotocol("mqtt")],
            ):
                await bench.connection()
                assert len(tls_alive()) == 1
        await listener.wait_idle()
        assert bench.connections
        assert not tls_alive()
    finally:
        gc.enable()


def tls_alive() -> list[MeteredTls]:
    return [each for each in gc.get_objects() if type(each) is MeteredTls]


async def test_a_burst_is_accepted_completely(bench: Bench) -> None:
    listener = bench.listen()
    opened = await asyncio.gather(
        *(asyncio.open_connection("127.0.0.1", listener.port) for _ in range(300))
    )
    await bench.connection(299)
    assert listener.connections == 300
    assert listener.stats.opened_total == 300
    for _, writer in opened:
        writer.close()
    await listener.wait_idle()


async def test_taking_leave_of_every_connection(bench: Bench) -> None:
    listener = bench.listen()
    opened = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(3)]
    await bench.connection(2)
    listener.stop_accepting()
    await listener.close_connections(0x8B)
    for reader, writer in opened:
        assert await reader.read() == b"\xe0\x01\x8b"
        writer.close()
    await listener.wait_idle()
    assert [connection.reason_codes for connection in bench.connections] == [[0x8B]] * 3


@pytest.mark.parametrize("kind", ["tls", "ws", "proxy"])
async def test_taking_leave_breaks_handshakes_off(
    bench: Bench, certificates: Certificates, kind: str
) -> None:
    changes: dict[str, Any] = {}
    if kind == "tls":
        changes["tls"] = certificates.tls()
    if kind == "proxy":
        changes["proxy_protocol"] = True
    listener = bench.listen("tcp" if kind == "proxy" else kind, **changes)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    while listener.connections == 0:
        await asyncio.sleep(0)
    await listener.close_connections(0x8B)
    assert await closed_by_peer(reader)
    writer.close()
    await listener.wait_idle()


@pytest.mark.parametrize("kind", ["tcp", "ws"])
@pytest.mark.parametrize("turns", range(5))
async def test_taking_leave_at_each_turn_of_an_opening(bench: Bench, kind: str, turns: int) -> None:
    """Whatever the loop has done of an opening when it is cancelled, the place is free again."""
    listener = bench.listen(kind)
    with socket.create_connection(("127.0.0.1", listener.port)):
        while listener.connections == 0:
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        await listener.close_connections(0x8B)
    async with asyncio.timeout(HANG_S):
        await listener.wait_idle()
    assert listener.connections == 0


async def test_close_aborts_whatever_is_left(bench: Bench) -> None:
    listener = bench.listen()
    with socket.create_connection(("127.0.0.1", listener.port)):
        connection = await bench.connection()
        connection.stream.write(bytes(16 * 1024 * 1024))
        await listener.close()
        assert connection.lost
        assert listener.connections == 0


async def test_close_right_after_accepting_leaks_nothing(bench: Bench) -> None:
    """The task that opens a transport is cancelled before its first step."""
    listener = bench.listen()
    client = socket.create_connection(("127.0.0.1", listener.port))
    listener._accept_ready(listener._sockets[0])
    assert listener.connections == 1
    await listener.close()
    assert listener.connections == 0
    client.close()


@pytest.mark.parametrize("kind", ["tcp", "tls", "ws", "wss"])
async def test_proxy_header_before_everything_else(
    bench: Bench, certificates: Certificates, kind: str
) -> None:
    bench.echo = True
    secure = kind in ("tls", "wss")
    listener = bench.listen(kind, proxy_protocol=True, tls=certificates.tls() if secure else None)
    context = client_context(cafile=certificates["ca.pem"]) if secure else None
    sock = socket.create_connection(("127.0.0.1", listener.port))
    sock.sendall(HEADER)
    sock.setblocking(False)
    if kind in ("tcp", "tls"):
        reader, writer = await asyncio.open_connection(
            sock=sock, ssl=context, server_hostname="localhost" if secure else None
        )
        writer.write(b"ping")
        assert await reader.readexactly(4) == b"ping"
        writer.close()
    else:
        async with connect(
            f"{kind}://localhost/mqtt",
            subprotocols=[Subprotocol("mqtt")],
            sock=sock,
            ssl=context,
            proxy=None,
        ) as client:
            await client.send(b"ping")
            assert await client.recv() == b"ping"
    peer = (await bench.connection()).peer
    assert (peer.address, peer.port) == ("203.0.113.7", 56324)
    assert not peer.loopback


@pytest.mark.parametrize(
    ("header", "address", "loopback"),
    [
        (b"PROXY UNKNOWN\r\n", "127.0.0.1", False),
        (b"PROXY TCP4 127.0.0.1 127.0.0.1 9 9\r\n", "127.0.0.1", True),
    ],
)
async def test_loopback_behind_a_proxy(
    bench: Bench, header: bytes, address: str, loopback: bool
) -> None:
    listener = bench.listen(proxy_protocol=True)
    _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(header)
    peer = (await bench.connection()).peer
    assert (peer.address, peer.loopback) == (address, loopback)
    writer.close()


async def test_without_a_valid_header_nobody_passes(bench: Bench) -> None:
    listener = bench.listen(proxy_protocol=True, handshake_timeout_s=0.05)
    for sent in (b"\x10\x0c\x00\x04MQTT", b"PROXY TCP4"):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(sent)
        assert await closed_by_peer(reader)
        writer.close()
    await listener.wait_idle()
    assert listener.stats.handshake_failures_total == 2
    assert bench.connections == []


async def test_a_header_is_not_understood_unless_asked_for(bench: Bench) -> None:
    listener = bench.listen()
    _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(HEADER)
    connection = await bench.connection()
    await connection.until(lambda c: c.received == HEADER)
    assert connection.peer.address == "127.0.0.1"
    writer.close()


class Exhausted:
    """A listening socket in a process without descriptors."""

    def __init__(self, real: socket.socket) -> None:
        self.real = real

    def accept(self) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")


async def test_accepting_pauses_without_descriptors(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.net.listener.ACCEPT_RETRY_S", 0.01)
    listener = bench.listen()
    real = listener._sockets[0]
    listener._accept_ready(Exhausted(real))  # type: ignore[arg-type]
    _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    assert bench.connections == []
    await bench.connection()
    writer.close()


async def test_stopping_while_paused(bench: Bench) -> None:
    listener = bench.listen()
    listener._accept_ready(Exhausted(listener._sockets[0]))  # type: ignore[arg-type]
    listener.stop_accepting()
    assert not listener.accepting


async def test_a_connection_that_cannot_be_made_takes_its_socket_with_it(bench: Bench) -> None:
    def refuse(*_: object) -> Any:
        raise RuntimeError("no connection today")

    settings = ListenerSettings(name="t", kind="tcp", host="127.0.0.1", port=0)
    listener = Listener(settings, refuse, admission=bench.admission, metrics=bench.metrics)
    listener.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    assert await closed_by_peer(reader)
    writer.close()
    await listener.wait_idle()
    assert bench.metrics.unexpected_errors == {("transport",): 1}
    await listener.close()


async def test_all_listeners_start_or_none(bench: Bench) -> None:
    taken = bench.listen()
    first = ListenerSettings(name="a", kind="tcp", host="127.0.0.1", port=0)
    second = ListenerSettings(name="b", kind="tcp", host="127.0.0.1", port=taken.port)
    listeners = [
        Listener(settings, bench.make, admission=bench.admission) for settings in (first, second)
    ]
    with pytest.raises(AddressUnavailable):
        open_listeners(listeners)
    assert not listeners[0].accepting
    open_listeners(listeners[:1])
    assert listeners[0].accepting
    await listeners[0].close()


class Troubled:
    """A listening socket whose accept fails in given ways."""

    def __init__(self, *failures: OSError) -> None:
        self.failures = list(failures)

    def accept(self) -> Any:
        raise self.failures.pop(0)


async def test_clients_that_left_the_backlog_are_skipped(bench: Bench) -> None:
    listener = bench.listen()
    troubled = Troubled(ConnectionAbortedError(), BlockingIOError())
    listener._accept_ready(troubled)  # type: ignore[arg-type]
    assert troubled.failures == []
    assert listener.connections == 0


async def test_a_broken_listening_socket_is_not_hidden(bench: Bench) -> None:
    listener = bench.listen()
    with pytest.raises(OSError, match="strange"):
        listener._accept_ready(Troubled(OSError(errno.EINVAL, "strange")))  # type: ignore[arg-type]


async def test_a_defect_while_opening_is_reported_and_releases_the_socket(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_: socket.socket) -> Any:
        raise RuntimeError("a defect")

    monkeypatch.setattr("perdure.net.listener.read_proxy_header", broken)
    listener = bench.listen(proxy_protocol=True)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    assert await closed_by_peer(reader)
    writer.close()
    await listener.wait_idle()
    assert bench.metrics.unexpected_errors == {("accept",): 1}
