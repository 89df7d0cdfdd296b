"""What a change of its subscriptions does to a session: to its order, the router and its groups.

A subscription holds from an offset on, and up to one. Invariant: what a session was owed before the
change it is owed after it, with the same numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import msgspec

from perdure.errors import MqttError
from perdure.model import BackfillProgress, Subscription
from perdure.mqtt.reason_codes import QUOTA_EXCEEDED

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.backfill import Backfill
    from perdure.broker.delivery.live_session import LiveSession
    from perdure.broker.shared.subscriptions import SharedSubscriptions


@final
class SubscriptionChanges:
    """Makes, replaces and ends subscriptions of connected sessions.

    Args:
        core: what every part stands on.
        backfill, shared_subscriptions: what else it uses.
    """

    def __init__(
        self, core: BrokerCore, *, backfill: Backfill, shared_subscriptions: SharedSubscriptions
    ) -> None:
        self._core = core
        self._backfill: Backfill = backfill
        self._shared_subscriptions: SharedSubscriptions = shared_subscriptions

    def join_group(
        self,
        session: LiveSession,
        existing: Subscription | None,
        sub: Subscription,
        replay_us: int,
    ) -> None:
        """Make or change a subscription of a shared group.

        Args:
            session: whose it is.
            existing: what has its name now.
            sub: the new one.
            replay_us: where the group begins if it is new; -1 = now.
        """
        core = self._core
        if existing is not None and existing.group_key != sub.group_key:
            self._shared_subscriptions.leave(session, existing)  # another content filter
        if session.durable:
            if existing is not None:
                core.committer.batch.delete_subscription(
                    session.client_id, existing, epoch=session.record.epoch
                )
            core.committer.batch.put_subscription(
                session.client_id, sub, epoch=session.record.epoch
            )
        session.subs[sub.name] = sub
        session.subscription_bytes += sub.size
        if existing is None:
            core.metrics.subscriptions += 1
        else:
            session.subscription_bytes -= existing.size
        self._shared_subscriptions.join(session, sub, replay_us=replay_us)
        group = session.groups[sub.group_key]
        if session.connection.is_connected:
            group.joined()

    async def subscribe(
        self,
        session: LiveSession,
        existing: Subscription | None,
        sub: Subscription,
        *,
        wants_retained: bool,
        replay_us: int,
    ) -> bool:
        """Make or change a subscription of the session's own.

        Args:
            session: whose it is.
            existing: what has its name now.
            sub: the new one; from when it holds is said here.
            wants_retained: retained messages come before the live flow.
            replay_us: recorded ones come, from this time on; -1 = they do not.

        Returns:
            Whether it is to be backfilled before it joins the live flow.

        Raises:
            MqttError: the session remembers too many that have ended (0x97).
        """
        core = self._core
        fence = core.dispatcher.offset
        if wants_retained:
            wants_retained = await self._backfill.may_have_retained(sub.filter)
            if not session.is_open:
                return False
            # A store in a server takes its time, and messages and backfills go on meanwhile: the
            # subscription holds from where the router gets it. What was handed out since the
            # store was asked may be retained as well.
            wants_retained = wants_retained or fence != core.dispatcher.offset
            fence = core.dispatcher.offset
            existing = session.subs.get(sub.name)
        sub = msgspec.structs.replace(sub, since_offset=fence)
        progress: BackfillProgress | None = None
        if replay_us >= 0:
            after = core.database.capabilities.offset_before(replay_us)
            if core.past is None:
                # It begins with the log: what the log lacks of it later on is missing.
                after = max(after, core.before_log())
            elif core.past.is_full and after < core.seam():
                raise MqttError(QUOTA_EXCEEDED, "too many replays wait for the archive: come later")
            progress = BackfillProgress(False, "", 0, after)
        elif wants_retained:
            after = fence
            if existing is not None and existing.backfill is not None:
                after = existing.backfill.after_offset
            progress = BackfillProgress(True, "", core.database.last_offset, after)
        elif existing is not None and existing.backfill is not None:
            progress = existing.backfill
        elif existing is not None and _same_options(existing, sub):
            return False  # nothing changes that the order depends on
        if progress is not None:
            sub = msgspec.structs.replace(sub, backfill=progress)
        self._replace(session, existing, sub)
        if progress is not None:
            session.backfilling += 1
        return progress is not None

    def give_up(self, session: LiveSession, sub: Subscription) -> None:
        """UNSUBSCRIBE: what was already matched may still be delivered."""
        self._end(session, sub)
        del session.subs[sub.name]
        session.subs_version += 1
        self._core.metrics.subscriptions -= 1

    def change_where(self, session: LiveSession, sub: Subscription, where: str) -> None:
        """The stored content filter of a subscription is another one from now on.

        Raises:
            MqttError: the session remembers too many that have ended (0x97).
        """
        core = self._core
        if sub.group:
            # Its group goes by the new one; here it is what is shown.
            following = msgspec.structs.replace(sub, where=where)
            session.subs[sub.name] = following
            session.subscription_bytes += following.size - sub.size
            if session.durable:
                core.committer.batch.put_subscription(
                    session.client_id, following, epoch=session.record.epoch
                )
            return
        following = msgspec.structs.replace(sub, where=where, since_offset=core.dispatcher.offset)
        self._replace(session, sub, following)
        if following.backfill is not None:
            session.backfilling += 1
            self._backfill.start(session, sub.name)

    def _replace(
        self, session: LiveSession, existing: Subscription | None, sub: Subscription
    ) -> None:
        """Put a subscription in the place of an older one, which ends here."""
        core = self._core
        if existing is not None:
            if existing.since_offset == sub.since_offset:
                session.subscription_bytes -= existing.size
                if existing.where != sub.where:
                    core.router.remove(session, existing)
                if existing.backfill is not None:
                    session.backfilling -= 1
                    session.joining.pop(sub.name, None)
            else:
                if self._remembers_too_much(session, sub):
                    # What its unacknowledged messages remember may not grow without end either.
                    raise MqttError(QUOTA_EXCEEDED, "too many changes of subscriptions")
                self._end(session, existing)
        else:
            core.metrics.subscriptions += 1
        session.subs[sub.name] = sub
        session.subscription_bytes += sub.size
        session.subs_version += 1
        core.router.put(session, sub)
        if session.durable:
            core.committer.batch.put_subscription(
                session.client_id, sub, epoch=session.record.epoch
            )

    def _end(self, session: LiveSession, sub: Subscription) -> None:
        """A subscription holds no longer. A durable session remembers it until its cursor has
        passed this point, so that its enumeration of the log stays the same (trap 29). One of
        QoS 0 too: where others overlap it, its identifier and RETAIN are in what they were sent
        [MQTT-4.4.0-1]."""
        core = self._core
        if sub.group:
            self._shared_subscriptions.leave(session, sub)
        else:
            core.router.remove(session, sub)
        if sub.backfill is not None:
            session.backfilling -= 1
            session.joining.pop(sub.name, None)
        fence = core.dispatcher.offset
        if not session.lagging and not session.backfilling and session.outbound.is_idle():
            # Nothing is outstanding, so nothing needs to remember it.
            session.outbound.lift(fence)
            core.cursors.put_now(session)
        keep = (
            not sub.group
            and (session.durable or session.lagging)
            and sub.backfill is None
            and sub.since_offset < fence
            and session.outbound.acked_offset < fence
        )
        if keep:
            ended = msgspec.structs.replace(sub, until_offset=fence)
            session.ended.append(ended)
            if session.durable:
                core.committer.batch.put_subscription(
                    session.client_id, ended, epoch=session.record.epoch
                )
            return
        session.subscription_bytes -= sub.size
        if session.durable:
            core.committer.batch.delete_subscription(
                session.client_id, sub, epoch=session.record.epoch
            )

    def _remembers_too_much(self, session: LiveSession, sub: Subscription) -> bool:
        """Whether no subscription may end now to be remembered, with ``sub`` in its place."""
        config = self._core.session_config
        most = config.subscription_bytes_max
        return len(session.ended) >= config.subscriptions_max or (
            most > 0 and bool(session.ended) and session.subscription_bytes + sub.size > most
        )


def _same_options(one: Subscription, other: Subscription) -> bool:
    return (
        one.qos == other.qos
        and one.no_local == other.no_local
        and one.retain_as_published == other.retain_as_published
        and one.identifier == other.identifier
        and one.where == other.where
    )
