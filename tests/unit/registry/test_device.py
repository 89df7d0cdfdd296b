"""What is known of a device, ours and the seed's."""

from __future__ import annotations

import pytest

from perdure.errors import StorageCorrupt
from perdure.registry.device import (
    Connection,
    connected_fields,
    disconnected_fields,
    iso,
    read_device,
)

SEED = {
    "userId": "user-456",
    "transport": "websockets-transport",
    "userAgent": "Mozilla/5.0...",
    "connectedAt": "2026-01-26T10:30:00Z",
}


def test_a_device_that_the_seed_has_written() -> None:
    device = read_device("device-123", SEED)
    assert (device.user_id, device.user_agent) == ("user-456", "Mozilla/5.0...")
    assert device.connected_at == device.last_seen_at == "2026-01-26T10:30:00Z"
    assert device.connections == {"websockets-transport": Connection(True, "2026-01-26T10:30:00Z")}
    assert device.is_connected


def test_several_transports() -> None:
    fields = dict(SEED)
    fields |= connected_fields("mqtt", iso(1_000), user_id="", user_agent="", worker="node 1")
    fields |= disconnected_fields("websockets-transport", iso(2_000_000))
    device = read_device("d", fields)
    assert fields["transport"] == "mqtt"
    assert device.user_id == "user-456"
    assert device.connections == {
        "mqtt": Connection(True, "1970-01-01T00:00:00.001Z", "node 1"),
        "websockets-transport": Connection(False, "1970-01-01T00:00:02.000Z"),
    }
    assert device.last_seen_at == "1970-01-01T00:00:02.000Z"
    fields |= disconnected_fields("mqtt", iso(3_000_000))
    assert not read_device("d", fields).is_connected


def test_a_field_that_is_not_ours() -> None:
    with pytest.raises(StorageCorrupt):
        read_device("d", {"transport:mqtt": "maybe"})
