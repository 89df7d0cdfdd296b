"""An answer is read to its end, or not further than its bound."""

from __future__ import annotations

import asyncio
import gzip
from typing import final

import httpx
import pytest

from perdure.net.http_body import read_body
from tests.support.bounds import HANG_S


@final
class Parts(httpx.AsyncByteStream):
    """Five parts; counts those that were read."""

    def __init__(self) -> None:
        self.given = 0

    def __aiter__(self) -> Parts:
        return self

    async def __anext__(self) -> bytes:
        if self.given == 5:
            raise StopAsyncIteration
        self.given += 1
        return b"xxxx"


async def test_what_is_too_long_is_not_read_to_its_end() -> None:
    parts = Parts()
    assert await read_body(httpx.Response(200, stream=parts), bytes_max=20) == b"x" * 20
    assert parts.given == 5
    parts = Parts()
    with pytest.raises(ValueError, match="more than 7 bytes"):
        await read_body(httpx.Response(200, stream=parts), bytes_max=7)
    assert parts.given == 2
    async with asyncio.timeout(HANG_S):
        while len(asyncio.all_tasks()) > 1:  # the loop closes what httpx has left open
            await asyncio.sleep(0)


@pytest.mark.parametrize("encoding", ["gzip", "Deflate", "identity, gzip"])
async def test_what_is_compressed_is_not_unpacked(encoding: str) -> None:
    """A bound on what comes says nothing of what it becomes."""
    answer = httpx.Response(
        200,
        headers={"Content-Encoding": encoding},
        stream=httpx.ByteStream(gzip.compress(b"x" * 100_000)),
    )
    with pytest.raises(ValueError, match=f"in the encoding {encoding}, which was not asked for"):
        await read_body(answer, bytes_max=1_000)


@pytest.mark.parametrize("encoding", ["", "identity", "Identity"])
async def test_what_is_as_it_was_asked_for_is_read(encoding: str) -> None:
    answer = httpx.Response(
        200, headers={"Content-Encoding": encoding}, stream=httpx.ByteStream(b"plain")
    )
    assert await read_body(answer, bytes_max=5) == b"plain"
