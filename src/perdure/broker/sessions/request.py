"""What a client that was let in wants of its session."""

from __future__ import annotations

from typing import final

from perdure.broker.auth.authorize import Identity
from perdure.model import Will


@final
class SessionRequest:
    """What a client that was let in wants of its session.

    Attributes:
        expiry_s: as granted; 0 = the session ends with its connection.
        packet_bytes_max: Maximum Packet Size; 0 = none.
    """

    __slots__ = (
        "clean_start",
        "client_id",
        "expiry_s",
        "identity",
        "packet_bytes_max",
        "protocol",
        "receive_maximum",
        "will",
    )

    def __init__(
        self,
        client_id: str,
        identity: Identity,
        will: Will | None,
        *,
        clean_start: bool,
        expiry_s: int,
        receive_maximum: int,
        protocol: int,
        packet_bytes_max: int = 0,
    ) -> None:
        self.client_id: str = client_id
        self.identity: Identity = identity
        self.will: Will | None = will
        self.clean_start: bool = clean_start
        self.expiry_s: int = expiry_s
        self.receive_maximum: int = receive_maximum
        self.protocol: int = protocol
        self.packet_bytes_max: int = packet_bytes_max
