"""All parts of one broker, for whoever looks after it as a whole: ``broker.broker`` and ``server``.

Each record adds the parts of its floor to the one below (``BrokerCore``, ``SessionParts``,
``ConnectionParts``), so a part that is given one of them sees nothing above itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from perdure.broker.connection.parts import ConnectionParts

if TYPE_CHECKING:
    from perdure.broker.access.ban_enforcer import BanEnforcer
    from perdure.broker.access.login_expiry import LoginExpiry
    from perdure.broker.cluster.notices import Notices
    from perdure.broker.connection.subscribe_handler import SubscribeHandler
    from perdure.broker.delivery.pending_limits import PendingLimits
    from perdure.broker.delivery.registry import Registry
    from perdure.broker.monitor.clock_watch import ClockWatch
    from perdure.broker.monitor.gauges import Gauges
    from perdure.broker.monitor.sys_publisher import SysPublisher
    from perdure.broker.retention.retention import Retention
    from perdure.broker.sessions.claims import Claims
    from perdure.broker.sessions.counts import SessionCounts
    from perdure.broker.sessions.reaper import Reaper
    from perdure.broker.sessions.stored_filters import StoredFilters
    from perdure.broker.sessions.wills import WillPublisher
    from perdure.broker.shared.echoes import Echoes
    from perdure.broker.shared.subscriptions import SharedSubscriptions


@final
class Services(ConnectionParts):
    """The parts of one broker."""

    __slots__ = (
        "ban_enforcer",
        "claims",
        "clock_watch",
        "echoes",
        "filters",
        "gauges",
        "login_expiry",
        "notices",
        "pending_limits",
        "reaper",
        "registry",
        "retention",
        "session_counts",
        "shared_subscriptions",
        "subscribe_handler",
        "sys",
        "wills",
    )

    ban_enforcer: BanEnforcer
    claims: Claims
    clock_watch: ClockWatch
    echoes: Echoes
    filters: StoredFilters
    gauges: Gauges
    login_expiry: LoginExpiry
    notices: Notices
    pending_limits: PendingLimits
    reaper: Reaper
    registry: Registry
    retention: Retention
    session_counts: SessionCounts
    shared_subscriptions: SharedSubscriptions
    subscribe_handler: SubscribeHandler
    sys: SysPublisher
    wills: WillPublisher
