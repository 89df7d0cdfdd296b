"""What a connection uses besides its session, one record for all connections of a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.broker.delivery.live_session import SessionParts

if TYPE_CHECKING:
    from perdure.broker.connection.connect_handler import ConnectHandler
    from perdure.broker.connection.enhanced_auth import EnhancedAuth
    from perdure.broker.connection.inbound_frames import InboundFrames
    from perdure.broker.connection.publish_refusals import PublishRefusals
    from perdure.broker.connection.refusal_log import RefusalLog
    from perdure.broker.connection.subscribe_handler import SubscribeHandler
    from perdure.broker.publish.path import PublishPath
    from perdure.broker.sessions.lifecycle import SessionLifecycle


class ConnectionParts(SessionParts):
    """Who handles which packet, and what keeps a client within its bounds."""

    __slots__ = (
        "connect_handler",
        "enhanced_auth",
        "inbound_frames",
        "publish_path",
        "refusal_log",
        "refusals",
        "sessions",
        "subscribe_handler",
    )

    connect_handler: ConnectHandler
    enhanced_auth: EnhancedAuth
    inbound_frames: InboundFrames
    publish_path: PublishPath
    refusal_log: RefusalLog
    refusals: PublishRefusals
    sessions: SessionLifecycle
    subscribe_handler: SubscribeHandler
