"""The bridge as an output: connects, subscribes, gives packets to the side that they concern."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, final

from perdure.config.schema import ForwarderConfig, MqttForwarderConfig
from perdure.errors import ConfigError, TargetUnavailable
from perdure.forwarders.mapping import TopicMap
from perdure.forwarders.mqtt.address import parse_address
from perdure.forwarders.mqtt.peer import WRONG_VERSION, ConnectRefused, Peer
from perdure.forwarders.mqtt.receiving import Receiving
from perdure.forwarders.mqtt.sending import Sending
from perdure.forwarders.output import Context, Output, Refusal
from perdure.forwarders.selection import check_filters
from perdure.limits import SESSION_EXPIRY_NEVER_S
from perdure.model import Cursor, Message
from perdure.model.bridge import ORIGIN, VIA
from perdure.mqtt import reason_codes
from perdure.mqtt.packets import (
    PUBREL,
    V5,
    V311,
    Ack,
    Connack,
    Connect,
    Properties,
    Publish,
    Subscribe,
    SubscribeFilter,
)
from perdure.session.seqno import PACKET_IDS, packet_id_of

_RETAIN_IF_NEW: Final = 1
"""Retain Handling: retained messages come if the subscription is new."""


@final
class MqttOutput(Output):
    """A bridge to another broker.

    Args:
        settings, context: of the forwarder.

    Raises:
        ConfigError: the settings cannot be used.
    """

    numbers: ClassVar[bool] = True

    def __init__(self, settings: MqttForwarderConfig, context: Context) -> None:
        self._settings = settings
        self._context = context
        self._address = parse_address(settings, context.setting)
        self._version = V5 if settings.version == "5" else V311
        self.reads_log = settings.direction != "in"
        self._takes = settings.direction != "out"
        TopicMap(settings.strip, settings.topic, setting=f"{context.setting}.topic")
        setting = f"{context.setting}.local_topic"
        TopicMap(settings.remote_strip, settings.local_topic, setting=setting)
        check_filters(settings.remote_filter, f"{context.setting}.remote_filter")
        if self._takes and not context.origin and self._version == V5:
            raise ConfigError("this broker has no identity", path=context.setting)
        self._peer: Peer | None = None
        self._sending: Sending | None = None
        self._receiving: Receiving | None = None
        self._early: list[Publish | Ack] | None = None
        """What comes with CONNACK, before it is known what that says."""

    async def open(self, cursor: Cursor) -> int:
        """Connect, and subscribe to what comes in."""
        as_bridge = self._version == V311 and self._takes
        try:
            answer = await self._connect(as_bridge=as_bridge)
        except ConnectRefused as error:
            if not as_bridge or error.reason != WRONG_VERSION:
                raise
            await self.close()
            answer = await self._connect(as_bridge=False)
        peer = self._peer
        assert peer is not None
        told = dict(answer.properties.user_properties)
        target = told.get(ORIGIN, "")
        if target == self._context.origin and target:
            raise ConfigError("it leads to this broker itself", path=f"{self._context.setting}.url")
        self._sending = Sending(
            self._settings, self._context, peer, cursor, answer.properties, target
        )
        if self._takes:
            session = self._context.session
            if not answer.session_present and session.awaiting_release:
                session.forget_awaiting()
            self._receiving = Receiving(self._settings, self._context, peer, target)
        early, self._early = self._early or [], None
        for packet in early:
            self._handle(packet)
        self._turn_over()
        if self._takes:
            await self._subscribe(peer, cursor)
        return 0

    async def write(self, messages: Sequence[Message]) -> list[Refusal]:
        """Send, and wait until all are settled."""
        assert self._sending is not None
        refused = await self._sending.write(messages)
        self.passed_over = self._sending.passed_over
        return refused

    def advance(self, cursor: Cursor, *, count: int, through_offset: int) -> Cursor:
        """The cursor of the session at the other broker."""
        assert self._sending is not None
        return self._sending.lift(through_offset)

    def check(self) -> None:
        """Raise if the connection is lost."""
        assert self._peer is not None
        self._peer.check()

    async def close(self) -> None:
        """Say goodbye."""
        if self._sending is not None:
            await self._sending.close()
            self._context.session.moved(self._sending.cursor)
            self._sending = None
        self._receiving = None
        if self._peer is not None:
            peer, self._peer = self._peer, None
            await peer.close()

    # Inside.

    async def _connect(self, *, as_bridge: bool) -> Connack:
        settings, context, address = self._settings, self._context, self._address
        peer = Peer(
            address.endpoint,
            self._version,
            packet_size_max=context.core.mqtt_config.packet_size_max,
            on_packet=self._handle,
            on_turn=self._turn_over,
        )
        self._peer = peer
        self._early = []
        properties = Properties()
        if self._version == V5:
            properties = Properties(
                session_expiry_interval=min(settings.session_expiry_s, SESSION_EXPIRY_NEVER_S),
                receive_maximum=settings.window,
                maximum_packet_size=context.core.mqtt_config.packet_size_max,
                user_properties=((VIA, context.origin),),
            )
        client_id = settings.client_id or f"perdure-{context.origin}-{context.name}"
        connect = Connect(
            self._version,
            False,
            settings.keep_alive_s,
            client_id,
            address.username,
            address.password,
            properties=properties,
        )
        return await peer.connect(connect, as_bridge=as_bridge)

    async def _subscribe(self, peer: Peer, cursor: Cursor) -> None:
        settings = self._settings
        filters = [
            SubscribeFilter(
                each,
                settings.qos_max,
                no_local=self._version == V5,
                retain_as_published=self._version == V5,
                retain_handling=_RETAIN_IF_NEW if self._version == V5 else 0,
            )
            for each in settings.remote_filter
        ]
        # The identifier of a message that is settled: no other in flight has it.
        packet_id = packet_id_of(cursor.serial + PACKET_IDS)
        answer = await peer.subscribe(Subscribe(packet_id, filters))
        for each, reason in zip(settings.remote_filter, answer.reasons, strict=True):
            if reason >= reason_codes.UNSPECIFIED_ERROR:
                text = reason_codes.name(reason)
                raise TargetUnavailable(f"the other broker refuses the filter {each}: {text}")

    def _handle(self, packet: Publish | Ack) -> None:
        if self._early is not None:
            self._early.append(packet)
        elif isinstance(packet, Publish):
            if self._receiving is not None:
                self._receiving.published(packet)
        elif packet.kind == PUBREL:
            if self._receiving is not None:
                self._receiving.released(packet)
        elif self._sending is not None:
            self._sending.acknowledged(packet)

    def _turn_over(self) -> None:
        if self._receiving is not None:
            self._receiving.turn_over()
        if self._sending is not None:
            self._sending.turn_over()
        if self._peer is not None:
            self._peer.flush()


def open_output(settings: ForwarderConfig, context: Context) -> MqttOutput:
    """Make a bridge."""
    assert isinstance(settings, MqttForwarderConfig)
    return MqttOutput(settings, context)
