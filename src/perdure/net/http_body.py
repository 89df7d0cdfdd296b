"""Bodies of HTTP answers, up to a bound: whoever answers does not say how much is kept."""

from __future__ import annotations

import contextlib

import httpx


async def read_body(response: httpx.Response, *, bytes_max: int) -> bytes:
    """What a streamed answer says.

    Raises:
        ValueError: it is longer; the rest is not read.
        httpx.HTTPError: it breaks off.
    """
    body = bytearray()
    async with contextlib.aclosing(response.aiter_bytes()) as parts:
        async for part in parts:
            body += part
            if len(body) > bytes_max:
                raise ValueError(f"answered with more than {bytes_max} bytes")
    return bytes(body)
