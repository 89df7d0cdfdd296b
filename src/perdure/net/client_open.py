"""A client's link by its endpoint: over TCP, TLS or WebSocket."""

from __future__ import annotations

import asyncio

from perdure.net.client_link import Endpoint, Link, LinkOwner, TcpLink, open_transport


async def open_link(endpoint: Endpoint, owner: LinkOwner) -> Link:
    """Connect to ``endpoint``; cancelling it leaves nothing open.

    Raises:
        OSError: the server cannot be reached, or TLS or WebSocket could not be agreed on.
    """
    if endpoint.transport == "ws":
        # The library takes 30 ms to import; most clients do without.
        from perdure.net.client_websocket import open_websocket_link

        return await open_websocket_link(endpoint, owner)
    loop = asyncio.get_running_loop()
    return await open_transport(endpoint, lambda: TcpLink(owner, loop))
