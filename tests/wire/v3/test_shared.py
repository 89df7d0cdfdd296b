"""MQTT 3.1.1, section 4.7: what 5.0 calls malformed is refused by the one code that there is."""

from __future__ import annotations

import pytest

from tests.wire.clients import Clients
from tests.wire.packets import Kind


@pytest.mark.parametrize(
    "topic_filter",
    [
        "$share",
        "$share/",
        "$share//t",
        "$share/g",
        "$share/g/",
        "$share/+/t",
        "$share/#",
        "$share/g#/t",
    ],
)
def test_what_is_no_shared_filter(clients: Clients, name: str, topic_filter: str) -> None:
    """[MQTT-4.8.2-1] [MQTT-4.8.2-2]: refused by 0x80 or the close; ``$share`` alone is a topic.

    Mosquitto grants them.
    """
    peer = clients.join(name)
    peer.send(clients.build.subscribe((topic_filter, 1)))
    found = peer.receive()
    if found is None:
        return
    assert found.kind is Kind.SUBACK
    if found.reasons != (0x80,):
        assert topic_filter == "$share"
        assert found.reasons == (1,)
