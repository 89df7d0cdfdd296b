"""What a broker counts of its connections: how many there are, and what goes over them."""

from __future__ import annotations

from perdure.observe.instruments import add


class ConnectionMetrics:
    """The part of ``Metrics`` that is about connections, packets and bytes."""

    __slots__ = (
        "bytes_received",
        "bytes_sent",
        "connack_sent",
        "connections",
        "connections_closed",
        "connections_maximum",
        "connections_opened",
        "control_packets_received",
        "control_packets_sent",
        "payload_bytes_received",
        "payload_bytes_sent",
        "protocol_errors",
        "pubacks_received",
        "pubacks_sent",
        "publishes_received",
        "tls_handshake_failures",
        "unexpected_errors",
    )

    def __init__(self) -> None:
        # Connections.
        self.connections: dict[tuple[str, ...], int] = {}
        self.connections_maximum: int = 0
        self.connections_opened: dict[tuple[str, ...], int] = {}
        self.connections_closed: dict[tuple[str, ...], int] = {}
        self.connack_sent: list[int] = [0] * 256
        self.tls_handshake_failures: int = 0
        # Packets and bytes.
        # By type; those that come most are counted by themselves: PUBLISH and PUBACK received,
        # PUBACKs sent for messages taken. Each PUBLISH sent is counted as a message delivered.
        self.control_packets_received: list[int] = [0] * 16
        self.control_packets_sent: list[int] = [0] * 16
        self.publishes_received: int = 0
        self.pubacks_received: int = 0
        self.pubacks_sent: int = 0
        self.bytes_received: int = 0
        self.bytes_sent: int = 0
        self.payload_bytes_received: int = 0
        self.payload_bytes_sent: int = 0
        self.protocol_errors: list[int] = [0] * 256
        self.unexpected_errors: dict[tuple[str, ...], int] = {}

    def connection_opened(self, listener: str, protocol: str) -> None:
        """Count a connection when its CONNECT was accepted or refused by the broker."""
        add(self.connections_opened, (listener, protocol))
        self.connections[(listener,)] = self.connections.get((listener,), 0) + 1
        self.connections_maximum = max(self.connections_maximum, self.connections_now)

    def connection_closed(self, listener: str, reason: str) -> None:
        """Count the end of a connection that ``connection_opened`` counted."""
        add(self.connections_closed, (reason,))
        self.connections[(listener,)] = self.connections.get((listener,), 0) - 1
        assert self.connections[(listener,)] >= 0, "closed more often than opened"

    @property
    def connections_now(self) -> int:
        """Connections on all listeners."""
        return sum(self.connections.values())
