"""What a connection uses, one record for all connections of a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.broker.connection.ending import EndingConnection, EndingParts

if TYPE_CHECKING:
    from perdure.broker.connection.control_packets import ControlPackets
    from perdure.broker.connection.inbound_frames import InboundFrames
    from perdure.broker.connection.publish_refusals import PublishRefusals
    from perdure.broker.publish.path import PublishPath


class ConnectionParts(EndingParts):
    """Who handles which packet, and what keeps a client within its bounds."""

    __slots__ = (
        "control_packets",
        "inbound_frames",
        "nobody",
        "publish_path",
        "refusals",
    )

    control_packets: ControlPackets
    inbound_frames: InboundFrames
    nobody: EndingConnection | None
    """Stands where connections are that are gone; made with the first that goes."""
    publish_path: PublishPath
    refusals: PublishRefusals
