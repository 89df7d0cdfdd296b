"""Who is given what: the parts above the core, from the lowest to the highest.

Each gets in its constructor what is below it. What a lower part tells a higher one goes through an
interface that the lower part declares, and is set here or by the higher part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.broker.access.ban_enforcer import BanEnforcer
from perdure.broker.access.login_expiry import LoginExpiry
from perdure.broker.cluster.foreign import ForeignBatches
from perdure.broker.cluster.handover import Handover
from perdure.broker.cluster.node import ClusterNode
from perdure.broker.cluster.notices import Notices
from perdure.broker.cluster.survey import Survey
from perdure.broker.connection.connect_handler import ConnectHandler
from perdure.broker.connection.control_packets import ControlPackets
from perdure.broker.connection.enhanced_auth import EnhancedAuth
from perdure.broker.connection.heavy_turns import HeavyTurns
from perdure.broker.connection.inbound_frames import InboundFrames
from perdure.broker.connection.newcomers import Newcomers
from perdure.broker.connection.publish_refusals import PublishRefusals
from perdure.broker.connection.refusal_log import RefusalLog
from perdure.broker.connection.subscribe_handler import SubscribeHandler
from perdure.broker.delivery.backfill import Backfill
from perdure.broker.delivery.catchup import CatchUp
from perdure.broker.delivery.inbox import Inbox
from perdure.broker.delivery.pending_limits import PendingLimits
from perdure.broker.delivery.registry import Registry
from perdure.broker.delivery.window_waiters import WindowWaiters
from perdure.broker.monitor.gauges import Gauges
from perdure.broker.monitor.sys_publisher import SysPublisher
from perdure.broker.publish.path import PublishPath
from perdure.broker.retention.retention import Retention
from perdure.broker.sessions.claims import Claims
from perdure.broker.sessions.counts import SessionCounts
from perdure.broker.sessions.lifecycle import SessionLifecycle
from perdure.broker.sessions.reaper import Reaper
from perdure.broker.sessions.stored_filters import StoredFilters
from perdure.broker.sessions.subscription_changes import SubscriptionChanges
from perdure.broker.sessions.wills import WillPublisher
from perdure.broker.shared.echoes import Echoes
from perdure.broker.shared.subscriptions import SharedSubscriptions
from perdure.model.reserved import RETENTION_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.broker.auth.bans import BanList
    from perdure.broker.services import Services
    from perdure.config.schema import Config
    from perdure.observe.sys_topics import SysTopics
    from perdure.storage.peers import Peers


def wire(
    services: Services, config: Config, *, level: int, bans: BanList, topics: SysTopics
) -> None:
    """Make the parts of a broker whose core is there, and ``clock_watch``.

    Args:
        services: is given them.
        config: the sections that ``Broker`` names.
        level: durability that acknowledgements wait for (``waiters.LEVEL_*``).
        bans: in force from the start.
        topics: computes ``$SYS``.
    """
    registry = services.registry = Registry(services.scheduler)
    services.notices = Notices(services)
    publish_path = services.publish_path = PublishPath(
        services, record=config.storage.record, record_qos0=config.storage.record_qos0
    )
    ban_enforcer = services.ban_enforcer = BanEnforcer(services, bans, registry=registry)
    inbox = services.inbox = Inbox(services)
    waiters = services.window_waiters = WindowWaiters(services.scheduler)
    limits = services.pending_limits = PendingLimits(services)
    services.catchup = CatchUp(services, pending_limits=limits, window_waiters=waiters)
    shared = services.shared_subscriptions = SharedSubscriptions(
        services, config.shared, inbox=inbox, registry=registry, window_waiters=waiters
    )
    services.group_owners = shared
    services.gauges = Gauges(
        services,
        ban_enforcer=ban_enforcer,
        clock_watch=services.clock_watch,
        registry=registry,
        shared_subscriptions=shared,
    )
    services.sys = SysPublisher(services, topics, services.gauges, interval_s=config.sys.interval_s)
    backfill = services.backfill = Backfill(
        services, inbox=inbox, sys=services.sys, window_waiters=waiters
    )
    counts = services.session_counts = SessionCounts(services.metrics)
    wills = services.wills = WillPublisher(
        services, ban_enforcer=ban_enforcer, publish_path=publish_path
    )
    claims = services.claims = Claims(services, wills=wills)
    sessions = services.sessions = SessionLifecycle(
        services,
        ban_enforcer=ban_enforcer,
        claims=claims,
        registry=registry,
        session_counts=counts,
        shared_subscriptions=shared,
        wills=wills,
    )
    services.reaper = Reaper(
        services,
        ban_enforcer=ban_enforcer,
        claims=claims,
        registry=registry,
        session_counts=counts,
        sessions=sessions,
        wills=wills,
    )
    services.retention = Retention(
        services,
        config.retention,
        tell=services.notices.tell,
        backfill=backfill,
        publish_path=publish_path,
        registry=registry,
        shared_subscriptions=shared,
        window_waiters=waiters,
    )
    services.notices.listeners[RETENTION_PREFIX] = services.retention.asked
    _wire_connections(services, config, backfill, level=level)


def wire_cluster(
    services: Services, peers: Peers, *, lost: Callable[[str, int], None]
) -> ClusterNode:
    """Make what a node of a cluster has besides.

    Args:
        services: all its other parts.
        peers: the nodes.
        lost: told of sessions that have a later owner.
    """
    registry, reaper = services.registry, services.reaper
    services.pipeline.on_regrouped = services.shared_subscriptions.regrouped
    handover = Handover(
        services, claims=services.claims, lost=lost, registry=registry, wills=services.wills
    )
    services.pipeline.on_silenced = handover.silenced
    foreign = ForeignBatches(
        services,
        echoes=services.echoes,
        filters=services.filters,
        claims=services.claims,
        deadlines=reaper,
        handover=handover,
        notices=services.notices,
        registry=registry,
        shared_subscriptions=services.shared_subscriptions,
    )
    survey = Survey(
        services,
        ban_enforcer=services.ban_enforcer,
        deadlines=reaper,
        registry=registry,
        session_counts=services.session_counts,
        shared_subscriptions=services.shared_subscriptions,
    )
    return ClusterNode(
        services,
        peers,
        filters=services.filters,
        foreign=foreign,
        reaper=reaper,
        shared_subscriptions=services.shared_subscriptions,
        survey=survey,
    )


def _wire_connections(
    services: Services, config: Config, backfill: Backfill, *, level: int
) -> None:
    """Make what the connections of a broker share."""
    clock = services.committer.clock
    services.refusal_log = RefusalLog(
        services.log, clock, services.scheduler, services.metrics, config.log
    )
    services.refusals = PublishRefusals(services, refusal_log=services.refusal_log)
    services.nobody = None
    services.inbound_frames = InboundFrames(
        config.limits.incomplete_bytes_max, services.scheduler, clock
    )
    services.newcomers = Newcomers(config.limits.connect_bytes_max)
    services.turn_budget.newcomers_max = config.limits.connects_waiting_max
    services.heavy_turns = HeavyTurns(services.pipeline, services.committer, services.turn_budget)
    enhanced_auth = EnhancedAuth(services, ban_enforcer=services.ban_enforcer)
    services.login_expiry = LoginExpiry(
        services, registry=services.registry, shared=services.shared_subscriptions
    )
    connect_handler = ConnectHandler(
        services,
        level=level,
        ban_enforcer=services.ban_enforcer,
        enhanced_auth=enhanced_auth,
        login_expiry=services.login_expiry,
        registry=services.registry,
        sessions=services.sessions,
    )
    changes = SubscriptionChanges(
        services, backfill=backfill, shared_subscriptions=services.shared_subscriptions
    )
    services.filters = StoredFilters(
        services,
        changes=changes,
        registry=services.registry,
        shared_subscriptions=services.shared_subscriptions,
    )
    subscribe_handler = SubscribeHandler(
        services,
        level=level,
        backfill=backfill,
        changes=changes,
        refusal_log=services.refusal_log,
    )
    services.subscribe_handler = subscribe_handler
    services.echoes = Echoes(services, shared_subscriptions=services.shared_subscriptions)
    services.control_packets = ControlPackets(
        services,
        echoes=services.echoes,
        connect_handler=connect_handler,
        enhanced_auth=enhanced_auth,
        sessions=services.sessions,
        subscribe_handler=subscribe_handler,
    )
