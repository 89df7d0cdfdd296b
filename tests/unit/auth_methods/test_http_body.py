"""An answer is read to its end, or not further than its bound."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from perdure.auth_methods.http_body import read_body


async def test_what_is_too_long_is_not_read_to_its_end() -> None:
    given: list[int] = []

    async def parts() -> AsyncIterator[bytes]:
        for number in range(5):
            given.append(number)
            yield b"xxxx"

    assert await read_body(httpx.Response(200, content=parts()), bytes_max=20) == b"x" * 20
    assert given == [0, 1, 2, 3, 4]
    given.clear()
    with pytest.raises(ValueError, match="more than 7 bytes"):
        await read_body(httpx.Response(200, content=parts()), bytes_max=7)
    assert given == [0, 1]
