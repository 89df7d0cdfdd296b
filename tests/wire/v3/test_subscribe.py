"""MQTT 3.1.1, sections 3.8 to 3.11: the layout of the answers, and UNSUBACK without codes."""

from __future__ import annotations

import pytest

from tests.wire.clients import Clients


@pytest.mark.spec("MQTT-2.3.1-7@3.1.1")
@pytest.mark.spec("MQTT-3.8.4-1@3.1.1")
@pytest.mark.spec("MQTT-3.8.4-2@3.1.1")
@pytest.mark.spec("MQTT-3.10.4-4@3.1.1")
@pytest.mark.parametrize("packet_id", [1, 2, 255, 256, 0x0D0A, 65_534, 65_535])
def test_answers_bear_the_identifier(clients: Clients, name: str, packet_id: int) -> None:
    peer = clients.join(name)
    peer.send(clients.build.subscribe((name, 1), packet_id=packet_id))
    peer.expect(b"\x90\x03" + packet_id.to_bytes(2, "big") + b"\x01")
    peer.send(clients.build.unsubscribe(name, packet_id=packet_id))
    peer.expect(b"\xb0\x02" + packet_id.to_bytes(2, "big"))


@pytest.mark.spec("MQTT-3.10.4-5@3.1.1")
@pytest.mark.parametrize("count", [1, 3, 100])
def test_unsubscribe_from_nothing(clients: Clients, name: str, count: int) -> None:
    """UNSUBACK comes even if no filter was there; it has no codes."""
    peer = clients.join(name)
    peer.send(
        clients.build.unsubscribe(*(f"{name}/{index}" for index in range(count)), packet_id=5)
    )
    peer.expect(b"\xb0\x02\x00\x05")
