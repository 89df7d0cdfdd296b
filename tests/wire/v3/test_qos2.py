"""MQTT 3.1.1, section 4.3.3: a PUBREL is answered in any case."""

from __future__ import annotations

import pytest

from tests.wire.clients import Clients
from tests.wire.packets import Kind


@pytest.mark.spec("MQTT-4.3.3-2@3.1.1")
@pytest.mark.parametrize("packet_id", [1, 500, 65_535])
def test_pubrel_of_nothing(clients: Clients, name: str, packet_id: int) -> None:
    """PUBREL must be answered with PUBCOMP, also for an identifier released before."""
    peer = clients.join(name)
    for _ in range(3):
        peer.send(clients.build.pubrel(packet_id))
        peer.expect_ack(Kind.PUBCOMP, packet_id)
