"""Clients whose certificates were revoked while they are connected."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from perdure.mqtt.reason_codes import NOT_AUTHORIZED
from perdure.net.certificate import Named, name_of
from perdure.net.shell import NO_HANDLER, Shell
from perdure.net.transport_shell import TransportShell
from perdure.observe.logs import get_logger

log = get_logger("net")

BURST: Final = 256
"""Certificates looked at in one turn of the loop."""


async def close_revoked(
    shells: Sequence[Shell], listed: frozenset[Named], *, listener: str
) -> None:
    """Take leave of those whose certificates a list revokes.

    Args:
        shells: connections of a listener.
        listed: what is revoked.
        listener: its name, for the log.
    """
    for number, shell in enumerate(shells, start=1):
        if number % BURST == 0:
            await asyncio.sleep(0)
        if shell.handler is NO_HANDLER or not isinstance(shell, TransportShell):
            continue  # its handshake finds it out
        certificate = shell.certificate()
        if certificate and name_of(certificate) in listed:
            log.warning(
                "client.certificate_revoked",
                listener=listener,
                address=shell.peer.address,
                subject=shell.peer.certificate_subject,
            )
            shell.handler.close(NOT_AUTHORIZED)
