"""Subscriptions that an administrator makes or ends for a client.

A connected client's go the way of its SUBSCRIBE and UNSUBSCRIBE. One that is away has its stored
session changed, by the same rules: what it was owed before it is owed after, with the same numbers,
so a subscription that ends is remembered until the session's cursor has passed it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, final

import msgspec

from perdure.admin.operation import Request
from perdure.admin.problems import Refused
from perdure.admin.records.session_parts import (
    SubscribeSession,
    SubscriptionEnded,
    UnsubscribeSession,
)
from perdure.admin.records.sessions import HeldSubscription
from perdure.broker.connection.filter_request import (
    FILTER_PROPERTY,
    check_count,
    check_room,
    parse_filter,
    requested_identifier,
    requested_where,
    subscription,
)
from perdure.broker.services import Services
from perdure.errors import MqttError
from perdure.model import BackfillProgress, StoredSession, Subscription
from perdure.mqtt.packets import Properties, Subscribe, SubscribeFilter
from perdure.mqtt.reason_codes import NOT_AUTHORIZED, QUOTA_EXCEEDED
from perdure.server.administration.service import Call, Handler
from perdure.server.administration.sessions import check_writable, unknown_session
from perdure.server.inspect import held_subscription
from perdure.server.rules import Rules

RETAINED_SCAN_MAX: Final = 10_000
"""Retained topics that are looked at for one that matches; beyond them one may."""


@final
class SessionSubscriptionOperations:
    """Answers what is to be changed of a client's subscriptions.

    Args:
        services: the parts of the broker.
        is_superuser: whether a user is exempt from the ACL.
    """

    def __init__(
        self, services: Services, *, is_superuser: Callable[[str | None], bool] = lambda _: False
    ) -> None:
        self._services = services
        self._is_superuser = is_superuser

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        """By request."""
        return {SubscribeSession: self.subscribe, UnsubscribeSession: self.unsubscribe}

    async def subscribe(self, request: SubscribeSession, call: Call) -> HeldSubscription:
        """Make or change one."""
        check_writable(self._services)
        packet = _packet(request)
        live = self._services.registry.live.get(request.client_id)
        try:
            if live is not None:
                call.before = _held(live.subs.get(request.filter))
                name = await self._services.subscribe_handler.subscribe_for(live, packet)
                made = live.subs.get(name)
            else:
                made = await self._subscribe_stored(request, packet, call)
        except MqttError as error:
            raise _refusal(error, request) from error
        if made is None:
            raise Refused("storage_conflict", f"{request.client_id!r} has changed it meanwhile")
        call.after = shown = held_subscription(made, seam=self._services.seam())
        return shown

    async def unsubscribe(self, request: UnsubscribeSession, call: Call) -> SubscriptionEnded:
        """End one."""
        services = self._services
        check_writable(services)
        live = services.registry.live.get(request.client_id)
        if live is not None:
            call.before = _held(live.subs.get(request.filter))
            done = await services.subscribe_handler.unsubscribe_for(live, request.filter)
        else:
            done = await self._unsubscribe_stored(request, call)
        if not done:
            raise Refused(
                "not_found", f"{request.client_id!r} does not subscribe to {request.filter!r}"
            )
        return SubscriptionEnded(request.client_id, request.filter)

    async def _subscribe_stored(
        self, request: SubscribeSession, packet: Subscribe, call: Call
    ) -> Subscription:
        services = self._services
        await services.registry.acquire(request.client_id)
        try:
            await services.pipeline.settled()
            stored = await self._stored(request.client_id)
            sub = self._wanted(stored, packet)
            held = {each.name: each for each in stored.subscriptions if not each.until_offset}
            existing = held.get(sub.name)
            call.before = _held(existing)
            every = stored.subscriptions
            check_room(services, len(every), sum(each.size for each in every), sub, existing)
            sub = await self._backfilled(sub, existing)
            if existing is not None:
                self._end(stored, existing, sub)
            batch, record = services.committer.batch, stored.record
            batch.put_subscription(record.client_id, sub, epoch=record.epoch)
            self._count(stored, 1 if existing is None else 0)
            await services.pipeline.committed()
        finally:
            services.registry.release(request.client_id)
        await services.committer.sync_now()
        return sub

    async def _unsubscribe_stored(self, request: UnsubscribeSession, call: Call) -> bool:
        services = self._services
        await services.registry.acquire(request.client_id)
        try:
            await services.pipeline.settled()
            stored = await self._stored(request.client_id)
            held = [each for each in stored.subscriptions if not each.until_offset]
            sub = next((each for each in held if each.name == request.filter), None)
            if sub is None:
                return False
            call.before = _held(sub)
            if sub.group:
                raise _not_shared()
            self._end(stored, sub, None)
            self._count(stored, -1)
            await services.pipeline.committed()
        finally:
            services.registry.release(request.client_id)
        await services.committer.sync_now()
        return True

    async def _stored(self, client_id: str) -> StoredSession:
        services = self._services
        if client_id in services.registry.live:
            raise Refused("conflict", f"{client_id!r} has just connected", hint="ask again")
        stored = await services.database.open_session(client_id)
        if stored is None:
            raise unknown_session(client_id)
        if stored.record.connected and services.peers is not None:
            raise Refused("conflict", f"{client_id!r} is connected to another node: ask that one")
        return stored

    def _wanted(self, stored: StoredSession, packet: Subscribe) -> Subscription:
        """The subscription, checked as SUBSCRIBE checks it.

        Raises:
            MqttError: it is refused.
        """
        services, requested = self._services, packet.filters[0]
        parsed = parse_filter(services, requested.filter, requested_where(services, packet))
        if parsed.group:
            raise _not_shared()
        rules = Rules(services, stored.record, self._is_superuser)
        if not rules.may_subscribe(parsed.topic_filter):
            raise MqttError(NOT_AUTHORIZED, "not authorised")
        check_count(services, parsed.where)
        identifier = requested_identifier(services, packet)
        return subscription(services, parsed, requested, identifier)

    async def _backfilled(self, sub: Subscription, existing: Subscription | None) -> Subscription:
        """The subscription with what it is to be given before it joins the live flow, by the rules
        of ``SubscriptionChanges.subscribe``; and from where on it holds."""
        services = self._services
        wants_retained = not sub.retain_handling or (sub.retain_handling == 1 and existing is None)
        if wants_retained and not sub.filter.startswith("$SYS"):
            fence = services.dispatcher.offset
            page = await services.database.read_retained(
                sub.filter, after_topic="", limit=1, scan_max=RETAINED_SCAN_MAX
            )
            # What was handed out since the store was asked may be retained as well.
            moved = fence != services.dispatcher.offset
            wants_retained = moved or bool(page.messages) or page.next_after is not None
        fence = services.dispatcher.offset
        progress = None if existing is None else existing.backfill
        if wants_retained:
            after = fence if progress is None else progress.after_offset
            progress = BackfillProgress(True, "", services.database.last_offset, after)
        return msgspec.structs.replace(sub, since_offset=fence, backfill=progress)

    def _end(
        self, stored: StoredSession, sub: Subscription, following: Subscription | None
    ) -> None:
        """What it was owed until now it is owed still (see ``SubscriptionChanges``).

        Args:
            stored: the session.
            sub: it holds no longer.
            following: what comes in its place, and goes on with its backfill.
        """
        batch, record = self._services.committer.batch, stored.record
        progress = sub.backfill
        if following is not None:
            is_plain, fence = progress is None, following.since_offset
        else:
            # What a backfill has begun to give comes another way.
            is_plain = progress is None or (progress.retained and not progress.retained_after)
            fence = self._services.dispatcher.offset
        batch.delete_subscription(record.client_id, sub, epoch=record.epoch)
        if is_plain and sub.since_offset < fence and stored.cursor.offset < fence:
            ended = msgspec.structs.replace(sub, until_offset=fence, backfill=None)
            batch.put_subscription(record.client_id, ended, epoch=record.epoch)

    def _count(self, stored: StoredSession, more: int) -> None:
        record = stored.record
        count = sum(not each.until_offset for each in stored.subscriptions) + more
        self._services.metrics.subscriptions_offline += count - record.subscription_count
        changed = msgspec.structs.replace(record, subscription_count=count)
        self._services.committer.batch.put_session(changed)


def _packet(request: SubscribeSession) -> Subscribe:
    options = SubscribeFilter(
        request.filter,
        request.qos,
        request.no_local,
        request.retain_as_published,
        request.retain_handling,
    )
    properties = Properties(
        subscription_identifiers=(request.identifier,) if request.identifier else (),
        user_properties=((FILTER_PROPERTY, request.where),) if request.where else (),
    )
    return Subscribe(1, [options], properties)


def _held(sub: Subscription | None) -> HeldSubscription | None:
    return None if sub is None else held_subscription(sub)


def _not_shared() -> Refused:
    return Refused(
        "conflict",
        "the client is not connected, and what its shared group has given it must be handed on",
        hint="change shared subscriptions while the client is connected",
    )


def _refusal(error: MqttError, request: SubscribeSession) -> Refused:
    details = {"reason_code": error.reason_code}
    if error.reason_code == NOT_AUTHORIZED:
        return Refused(
            "forbidden",
            f"{request.client_id!r} may not subscribe to {request.filter!r}: {error.message}",
            hint="perdure sessions explain shows the rules",
            details=details,
        )
    code = "conflict" if error.reason_code == QUOTA_EXCEEDED else "mqtt_error"
    return Refused(code, error.message, details=details)
