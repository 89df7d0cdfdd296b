"""What is known of a device: the seed's hash, and beside its fields ours.

::

    userId, transport, userAgent, connectedAt     the seed's; transport and connectedAt are those of
                                                  the connection that was made last
    lastSeenAt                                    when anything was heard of it
    transport:NAME                                connected TIME [WORKER] | disconnected TIME

Times are ISO 8601 in UTC, as JavaScript writes them. A device that somebody else has written has
the first four fields, or some of them, and is taken as connected by its one transport.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple, final

import msgspec

from perdure.errors import StorageCorrupt

TRANSPORT_FIELD: Final = "transport:"


@final
class Connection(NamedTuple):
    """A device's connection by one transport.

    Attributes:
        connected: it is there.
        since: when it came or went, ISO 8601.
        worker: to whom it is connected; empty = nobody said.
    """

    connected: bool
    since: str
    worker: str = ""


@final
class Device(msgspec.Struct, frozen=True):
    """A device.

    Attributes:
        device_id: its identifier.
        user_id: whose it is; empty = nobody said.
        user_agent: what it says it is.
        connected_at: when it was connected last, ISO 8601; empty = nobody said.
        last_seen_at: when anything was heard of it.
        connections: by transport.
    """

    device_id: str
    user_id: str = ""
    user_agent: str = ""
    connected_at: str = ""
    last_seen_at: str = ""
    connections: dict[str, Connection] = {}

    @property
    def is_connected(self) -> bool:
        """Whether it is, by any transport."""
        return any(each.connected for each in self.connections.values())


def read_device(device_id: str, fields: Mapping[str, str]) -> Device:
    """The device in a hash.

    Raises:
        StorageCorrupt: a field of ours is not what we write.
    """
    connections = {
        name.removeprefix(TRANSPORT_FIELD): _connection(device_id, value)
        for name, value in fields.items()
        if name.startswith(TRANSPORT_FIELD)
    }
    transport = fields.get("transport", "")
    if transport and transport not in connections:
        connections[transport] = Connection(True, fields.get("connectedAt", ""))
    return Device(
        device_id,
        fields.get("userId", ""),
        fields.get("userAgent", ""),
        fields.get("connectedAt", ""),
        fields.get("lastSeenAt", fields.get("connectedAt", "")),
        connections,
    )


def connected_fields(
    transport: str, at: str, *, user_id: str, user_agent: str, worker: str
) -> dict[str, str]:
    """The fields of a device that has connected."""
    fields = {
        "transport": transport,
        "connectedAt": at,
        "lastSeenAt": at,
        TRANSPORT_FIELD + transport: f"connected {at} {worker}".rstrip(),
    }
    if user_id:
        fields["userId"] = user_id
    if user_agent:
        fields["userAgent"] = user_agent
    return fields


def disconnected_fields(transport: str, at: str) -> dict[str, str]:
    """The fields of a device whose connection is gone."""
    return {"lastSeenAt": at, TRANSPORT_FIELD + transport: f"disconnected {at}"}


def iso(now_us: int) -> str:
    """A moment as JavaScript writes it: milliseconds, and Z."""
    moment = datetime.fromtimestamp(now_us / 1_000_000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _connection(device_id: str, value: str) -> Connection:
    state, _, rest = value.partition(" ")
    since, _, worker = rest.partition(" ")
    if state not in {"connected", "disconnected"}:
        raise StorageCorrupt(f"the device {device_id!r} has a connection {value[:40]!r}")
    return Connection(state == "connected", since, worker)
