"""What CONNACK tells a client that may come in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.config.schema import MqttConfig
from perdure.model.bridge import ORIGIN, VIA
from perdure.mqtt.packets import Connect, Properties

if TYPE_CHECKING:
    from perdure.broker.auth.authenticate import AuthStep
    from perdure.broker.connection.client import ClientConnection


def keep_alive_of(packet: Connect, config: MqttConfig) -> int:
    """The keep alive that the client is held to, seconds; 0 = none."""
    longest_s = config.keep_alive_max_s
    if longest_s and (not packet.keep_alive or packet.keep_alive > longest_s):
        return longest_s
    return packet.keep_alive


def connack_properties(
    config: MqttConfig,
    connection: ClientConnection,
    packet: Connect,
    *,
    client_id: str,
    assigned: bool,
    expiry_s: int,
    keep_alive_s: int,
    step: AuthStep | None,
    origin: str,
) -> Properties:
    """What CONNACK tells the client of us and of its session.

    Args:
        config: what we offer.
        connection: of the client.
        packet: its CONNECT.
        client_id, assigned: its identifier, and whether it is from us.
        expiry_s: of its session, as granted.
        keep_alive_s: that it is held to.
        step: how an enhanced authentication ended.
        origin: who this broker is, which a bridge asks for.
    """
    if packet.protocol < 5:
        return Properties()
    requested = packet.properties.session_expiry_interval or 0
    info = config.response_information
    if info:
        info = info.replace("%c", client_id)
    wants_info = packet.properties.request_response_information == 1
    is_bridge = bool(origin) and any(name == VIA for name, _ in packet.properties.user_properties)
    return Properties(
        session_expiry_interval=expiry_s if expiry_s != requested else None,
        receive_maximum=config.receive_maximum,
        maximum_qos=config.maximum_qos if config.maximum_qos < 2 else None,
        retain_available=None if config.retain_available else 0,
        maximum_packet_size=config.packet_size_max,
        assigned_client_identifier=client_id if assigned else None,
        topic_alias_maximum=config.topic_alias_maximum or None,
        wildcard_subscription_available=None if config.wildcard_subscription_available else 0,
        subscription_identifier_available=None if config.subscription_identifier_available else 0,
        shared_subscription_available=None if config.shared_subscription_available else 0,
        server_keep_alive=keep_alive_s if keep_alive_s != packet.keep_alive else None,
        response_information=info if info and wants_info else None,
        authentication_method=connection.auth_name or None,
        authentication_data=step.data if step is not None else None,
        user_properties=((ORIGIN, origin),) if is_bridge else (),
    )
