"""Links are tested through the client; here is what only a link can show."""

from __future__ import annotations

import asyncio

import pytest

from perdure.net.client_link import Endpoint
from perdure.net.client_open import open_link
from perdure.net.tls import client_context
from tests.support.bounds import HANG_S
from tests.unit.net.fake_broker import endpoint
from tests.unit.net.helpers import Bench, Certificates


class Owner:
    """Remembers what its link told it."""

    def __init__(self) -> None:
        self.received = b""
        self.lost: list[BaseException | None] = []
        self.changed = asyncio.Event()

    def link_received(self, data: bytes) -> None:
        self.received += data
        self.changed.set()

    def link_lost(self, exc: BaseException | None) -> None:
        self.lost.append(exc)
        self.changed.set()

    def link_writable(self, writable: bool) -> None:
        self.changed.set()

    async def until_lost(self) -> None:
        async with asyncio.timeout(HANG_S):
            while not self.lost:
                self.changed.clear()
                await self.changed.wait()


@pytest.mark.parametrize("kind", ["tcp", "ws"])
async def test_close_flushes_and_drops_what_comes_later(bench: Bench, kind: str) -> None:
    listener = bench.listen(kind)
    owner = Owner()
    link = await open_link(endpoint(listener), owner)
    link.write(b"x" * 1_000_000)
    link.close()
    link.close()
    link.write(b"late")
    link.pause_reading()
    link.resume_reading()
    connection = await bench.connection()
    connection.stream.write(b"unwanted")
    await connection.until(lambda c: c.lost)
    await owner.until_lost()
    assert connection.received == b"x" * 1_000_000
    assert owner.received == b""
    assert owner.lost == [None]


@pytest.mark.parametrize("kind", ["tcp", "ws"])
async def test_abort_is_told_once(bench: Bench, kind: str) -> None:
    owner = Owner()
    link = await open_link(endpoint(bench.listen(kind)), owner)
    connection = await bench.connection()
    link.abort()
    link.close()
    await owner.until_lost()
    await connection.until(lambda c: c.lost)
    assert len(owner.lost) == 1


@pytest.mark.parametrize("kind", ["tcp", "ws"])
async def test_paused_links_hold_bytes_back(bench: Bench, kind: str) -> None:
    owner = Owner()
    link = await open_link(endpoint(bench.listen(kind)), owner)
    connection = await bench.connection()
    link.pause_reading()
    connection.stream.write(b"held")
    for _ in range(20):
        await asyncio.sleep(0)
    assert owner.received == b""
    link.resume_reading()
    async with asyncio.timeout(HANG_S):
        while owner.received != b"held":
            owner.changed.clear()
            await owner.changed.wait()
    link.abort()
    await owner.until_lost()


async def test_a_local_address_can_be_chosen(bench: Bench) -> None:
    owner = Owner()
    link = await open_link(endpoint(bench.listen(), bind="127.0.0.2"), owner)
    assert (await bench.connection()).peer.address == "127.0.0.2"
    link.abort()
    await owner.until_lost()


async def test_an_unknown_authority_is_refused(bench: Bench, certificates: Certificates) -> None:
    listener = bench.listen("tls", tls=certificates.tls())
    context = client_context(cafile=certificates["other-ca.pem"])
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        await open_link(Endpoint(host="127.0.0.1", port=listener.port, tls=context), Owner())
    await listener.wait_idle()


@pytest.mark.parametrize("insecure", [False, True])
async def test_the_name_is_checked_unless_told_otherwise(
    bench: Bench, certificates: Certificates, insecure: bool
) -> None:
    tls = certificates.tls(
        certificate=certificates["client.pem"], private_key=certificates["client.key"]
    )
    listener = bench.listen("tls", tls=tls)
    context = client_context(cafile=certificates["ca.pem"], insecure=insecure)
    owner = Owner()
    where = Endpoint(host="127.0.0.2", port=listener.port, tls=context)
    listener_on_all = bench.listen("tls", host="127.0.0.2", tls=tls)
    where = Endpoint(host="127.0.0.2", port=listener_on_all.port, tls=context)
    if insecure:
        link = await open_link(where, owner)
        link.abort()
        await owner.until_lost()
    else:
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            await open_link(where, owner)
