"""Bodies of HTTP answers, up to a bound: whoever answers does not say how much is kept."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Final, cast

import httpx

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

PLAIN: Final = {"Accept-Encoding": "identity"}
"""Headers of a client whose answers are read here: a few bytes of gzip can become gigabytes."""


async def read_body(response: httpx.Response, *, bytes_max: int) -> bytes:
    """What a streamed answer says.

    Raises:
        ValueError: it is longer, or compressed, which ``PLAIN`` has not asked for; the rest is not
            read.
        httpx.HTTPError: it breaks off.
    """
    encoding = response.headers.get("content-encoding", "identity")
    if encoding.strip().lower() not in ("", "identity"):
        raise ValueError(f"answered in the encoding {encoding}, which was not asked for")
    body = bytearray()
    # An iterator that is left in its midst would be closed by the loop, at some time.
    reading = cast("AsyncGenerator[bytes]", response.aiter_bytes())
    async with aclosing(reading) as parts:
        async for part in parts:
            body += part
            if len(body) > bytes_max:
                raise ValueError(f"answered with more than {bytes_max} bytes")
    return bytes(body)
