"""SUBSCRIBE and UNSUBSCRIBE.

A subscription is in effect, and durable, before its SUBACK leaves (trap 51). It changes nothing
for the messages that were taken before it: those are handed out first. The retained
messages that it brings, if few, are committed with it; more of them, and a replay, follow as a
``backfill``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from perdure.broker.commit.waiters import LEVEL_FSYNC
from perdure.broker.connection.filter_request import (
    FilterRefused,
    check_count,
    check_room,
    parse_filter,
    requested_identifier,
    requested_where,
    subscription,
)
from perdure.broker.connection.replay_request import (
    REPLAY_PREFIX,
    requested_by_property,
    split_replay_filter,
)
from perdure.broker.connection.subscription_ack import Hold, SubscriptionAck
from perdure.errors import MqttError
from perdure.mqtt.errors import MalformedPacket, ProtocolViolation
from perdure.mqtt.packets import (
    EMPTY,
    Properties,
    Suback,
    Subscribe,
    SubscribeFilter,
    Unsuback,
    Unsubscribe,
)
from perdure.mqtt.reason_codes import (
    NO_SUBSCRIPTION_EXISTED,
    NOT_AUTHORIZED,
    UNSPECIFIED_ERROR,
)
from perdure.topic.names import parse_shared, validate_wildcards

if TYPE_CHECKING:
    from perdure.broker.connection.client import ClientConnection
    from perdure.broker.connection.refusal_log import RefusalLog
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.backfill import Backfill
    from perdure.broker.delivery.live_session import LiveSession
    from perdure.broker.sessions.subscription_changes import SubscriptionChanges


FILTERS_PER_STEP: Final = 32
"""Topic filters of one packet that are worked on at once; the others wait for their turn."""


@final
class SubscribeHandler:
    """Handles SUBSCRIBE and UNSUBSCRIBE.

    Args:
        core: what every part stands on.
        level: durability that the acknowledgements wait for, for durable sessions.
        backfill, changes, refusal_log: what else it uses.
    """

    def __init__(
        self,
        core: BrokerCore,
        *,
        level: int = LEVEL_FSYNC,
        backfill: Backfill,
        changes: SubscriptionChanges,
        refusal_log: RefusalLog,
    ) -> None:
        self._core = core
        self._backfill: Backfill = backfill
        self._changes: SubscriptionChanges = changes
        self._refusal_log: RefusalLog = refusal_log
        self._level = level

    async def subscribe(self, connection: ClientConnection, packet: Subscribe) -> None:
        """Make or change subscriptions; each filter has a reason code of its own."""
        session = connection.session
        assert session is not None
        identifier = requested_identifier(self._core, packet)
        await self._check_syntax(connection, [requested.filter for requested in packet.filters])
        replay_us = requested_by_property(packet)
        await self._after_what_was_acknowledged(session)
        if connection.is_closed:
            return
        # On one broker too, what a subscription brings comes behind its SUBACK.
        hold = Hold(self._core, connection.sender) if self._core.peers is not None else None
        reasons: list[int] = []
        backfills: list[str] = []
        said = ""
        for number, requested in enumerate(packet.filters, start=1):
            if not number % FILTERS_PER_STEP and not await self._next_step(connection):
                return
            try:
                where = requested_where(self._core, packet)
                reasons.append(
                    await self._subscribe(
                        session, requested, identifier, replay_us, where, backfills
                    )
                )
            except MqttError as error:
                if isinstance(error, (MalformedPacket, ProtocolViolation)):
                    raise
                if isinstance(error, FilterRefused):
                    said = said or error.message
                self._refusal_log.subscribe(
                    connection, error.reason_code, error.message, requested.filter
                )
                reasons.append(self._reason(connection, error.reason_code))
            if connection.is_closed:
                return
        why = EMPTY
        if said and connection.problem_information:
            why = Properties(reason_string=said)
        ack = SubscriptionAck(
            self._backfill, connection, Suback(packet.packet_id, reasons, why), backfills, hold
        )
        self._wait(session, ack)

    async def unsubscribe(self, connection: ClientConnection, packet: Unsubscribe) -> None:
        """Give up subscriptions; what was already matched may still be delivered."""
        session = connection.session
        assert session is not None
        await self._check_syntax(connection, packet.filters)
        await self._after_what_was_acknowledged(session)
        if connection.is_closed:
            return
        reasons: list[int] = []
        for number, name in enumerate(packet.filters, start=1):
            if not number % FILTERS_PER_STEP and not await self._next_step(connection):
                return
            existing = session.subs.get(self._stored_name(name))
            if existing is None:
                reasons.append(NO_SUBSCRIPTION_EXISTED)
                continue
            self._changes.give_up(session, existing)
            reasons.append(0)
        ack = SubscriptionAck(
            self._backfill, connection, Unsuback(packet.packet_id, reasons, EMPTY), []
        )
        self._wait(session, ack)

    async def subscribe_for(self, session: LiveSession, packet: Subscribe) -> str:
        """Subscribe for a connected client, which is told nothing; durable when this returns.

        Args:
            session: of the client.
            packet: with one filter, as the client would have sent it.

        Returns:
            The name of the subscription.

        Raises:
            MqttError: what the client would have been refused with.
            StorageError: it is not durable.
        """
        core = self._core
        identifier = requested_identifier(core, packet)
        requested = packet.filters[0]
        _check_filter(requested.filter, core.mqtt_config.topic_levels_max)
        await self._after_what_was_acknowledged(session)
        if not session.is_open:
            raise MqttError(UNSPECIFIED_ERROR, "the client has disconnected meanwhile")
        core.pipeline.now_us = core.clock.now_us()
        backfills: list[str] = []
        where = requested_where(core, packet)
        await self._subscribe(session, requested, identifier, -1, where, backfills)
        session.put_subscription_count()
        await core.pipeline.committed()
        await core.committer.sync_now()
        for name in backfills:
            if session.is_open:
                self._backfill.start(session, name)
        return self._stored_name(requested.filter)

    async def unsubscribe_for(self, session: LiveSession, name: str) -> bool:
        """End a subscription of a connected client; durable when this returns. Whether there was
        one."""
        core = self._core
        await self._after_what_was_acknowledged(session)
        existing = session.subs.get(name)
        if existing is None or not session.is_open:
            return False
        core.pipeline.now_us = core.clock.now_us()
        self._changes.give_up(session, existing)
        session.put_subscription_count()
        await core.pipeline.committed()
        await core.committer.sync_now()
        return True

    async def _after_what_was_acknowledged(self, session: LiveSession) -> None:
        """Wait until all is handed out that any node has acknowledged by now: a subscription is
        younger than that, and one that ends has still had it."""
        core = self._core
        if core.peers is not None:
            core.committer.batch.speak(session.client_id, epoch=session.record.epoch)
            await core.pipeline.committed()
        await core.pipeline.settled()

    async def _check_syntax(self, connection: ClientConnection, filters: list[str]) -> None:
        """Refuse what is no topic filter before any of the packet takes effect."""
        levels_max = self._core.mqtt_config.topic_levels_max
        for number, topic_filter in enumerate(filters, start=1):
            _check_filter(topic_filter, levels_max)
            if not number % FILTERS_PER_STEP and len(filters) > number:
                await self._core.turn_budget.step(connection)
                if connection.is_closed:
                    return

    async def _next_step(self, connection: ClientConnection) -> bool:
        """Let others have their turn in the middle of a packet; False if the client has gone.

        What was taken meanwhile is handed out before the next filter takes effect.
        """
        core = self._core
        await core.turn_budget.step(connection)
        await core.pipeline.settled()
        core.pipeline.now_us = core.clock.now_us()
        return not connection.is_closed

    def _wait(self, session: LiveSession, ack: SubscriptionAck) -> None:
        core = self._core
        session.put_subscription_count()
        if session.durable or session.groups:
            core.committer.wait(ack, self._level)
            core.pipeline.schedule()
        else:
            ack.committed()

    def _reason(self, connection: ClientConnection, reason_code: int) -> int:
        """3.1.1 knows one failure code [MQTT-3.9.3-2]."""
        return reason_code if connection.sender.version >= 5 else UNSPECIFIED_ERROR

    def _stored_name(self, name: str) -> str:
        """The name under which ``$replay/<from>/<filter>`` was kept."""
        try:
            return split_replay_filter(name)[1]
        except MqttError:
            return name

    async def _subscribe(
        self,
        session: LiveSession,
        requested: SubscribeFilter,
        identifier: int,
        replay_us: int,
        where: str,
        backfills: list[str],
    ) -> int:
        """One filter. Returns the granted QoS; raises its reason code."""
        core = self._core
        own_replay_us, name = split_replay_filter(requested.filter)
        if own_replay_us >= 0:
            replay_us = own_replay_us
        parsed = parse_filter(core, name, where)
        if not core.authorizer.subscribe(session.identity, parsed.topic_filter):
            raise MqttError(NOT_AUTHORIZED, "not authorised")
        if parsed.group and requested.no_local:
            raise ProtocolViolation("no-local on a shared subscription")  # [MQTT-3.8.3-4]
        existing = session.subs.get(name)
        sub = subscription(core, parsed, requested, identifier)
        held = len(session.subs) + len(session.ended)
        check_room(core, held, session.subscription_bytes, sub, existing)
        check_count(core, parsed.where)
        if sub.group:
            self._changes.join_group(session, existing, sub, replay_us)
        else:
            wants_retained = (
                not requested.retain_handling
                or (requested.retain_handling == 1 and existing is None)
            ) and replay_us < 0
            is_backfilled = await self._changes.subscribe(
                session, existing, sub, wants_retained=wants_retained, replay_us=replay_us
            )
            if is_backfilled:
                backfills.append(sub.name)
        return sub.qos


def _check_filter(topic_filter: str, levels_max: int) -> None:
    """Refuse the packet of what is no topic filter.

    [MQTT-4.7.1-1] [MQTT-4.7.1-2]: such a packet is malformed. [MQTT-4.8.2-1] [MQTT-4.8.2-2]: a
    filter that is well formed and no shared subscription, though it begins like one, is against
    the protocol (1.2). The reason code 0x8F is for what could be allowed and is not (3.9.3).
    """
    plain = topic_filter
    if plain.startswith(REPLAY_PREFIX):
        # The time before the filter may have an offset from UTC, with a + in it.
        plain = plain.removeprefix(REPLAY_PREFIX).partition("/")[2]
    try:
        _, own = parse_shared(plain)
    except MqttError as error:
        raise ProtocolViolation(error.message) from error
    if own.count("/") >= levels_max:
        return  # refused by itself, and thousands of levels are not looked through for that
    try:
        validate_wildcards(plain)
    except MqttError as error:
        raise MalformedPacket(error.message) from error
