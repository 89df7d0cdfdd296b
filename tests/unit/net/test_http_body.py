"""An answer is read to its end, or not further than its bound."""

from __future__ import annotations

import asyncio
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
