"""The administration service of a broker, made from its parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import final

from perdure.admin.audit import AuditHook
from perdure.broker.auth.control import AccessControl
from perdure.broker.services import Services
from perdure.clock import SystemClock
from perdure.config.live_settings import LiveSettings
from perdure.config.schema import Config
from perdure.forwarders.applications import Applications
from perdure.forwarders.service import ForwarderService
from perdure.identity.ledger import Ledger
from perdure.net.listener import Listener
from perdure.observe.metrics import Metrics
from perdure.observe.metrics_text import MetricsText
from perdure.server.administration.access import AccessOperations
from perdure.server.administration.acl import AclOperations
from perdure.server.administration.applications import ApplicationOperations
from perdure.server.administration.bans import BanOperations
from perdure.server.administration.cluster import ClusterOperations
from perdure.server.administration.config import ConfigOperations
from perdure.server.administration.filters import FilterOperations
from perdure.server.administration.forwarders import ForwarderOperations
from perdure.server.administration.history import Recorder
from perdure.server.administration.identity import IdentityOperations
from perdure.server.administration.listeners import ListenerOperations
from perdure.server.administration.listing import LiveTable
from perdure.server.administration.messages import MessageOperations
from perdure.server.administration.node import NodeOperations
from perdure.server.administration.node_reports import NodeReports
from perdure.server.administration.pipeline import PipelineOperations
from perdure.server.administration.publishing import PublishOperations
from perdure.server.administration.service import AdminService, AuditLog, Operations
from perdure.server.administration.session_parts import SessionPartOperations
from perdure.server.administration.session_subscriptions import SessionSubscriptionOperations
from perdure.server.administration.sessions import SessionOperations
from perdure.server.administration.stepped_exposition import SteppedExposition
from perdure.server.administration.storage import StorageOperations
from perdure.server.administration.subscriptions import SubscriptionOperations
from perdure.server.administration.timeline import TimelineOperations
from perdure.server.administration.tokens import TokenOperations
from perdure.server.administration.trace import TraceOperations
from perdure.server.administration.watch import WatchOperations
from perdure.server.alarms.forwarders import ForwarderReadings
from perdure.server.alarms.pipelines import PipelineReadings
from perdure.server.alarms.watch import AlarmWatch
from perdure.server.audit import AuditTrail
from perdure.server.bans import BanKeeper
from perdure.server.lifecycle import Part, Phase
from perdure.server.pipeline_watch import PipelineWatch
from perdure.server.trace.traces import Traces
from perdure.storage.ordered.replica import Replica


@final
class Administration:
    """The service, and what runs for it.

    Args:
        services: the parts of the broker.
        config: of the process.
        version: release.
        bans: keeps the bans.
        is_superuser: whether a user is exempt from the ACL.
        phase: of the process.
        traces: of the listeners' connections.
        forwarders: goes to other systems.
        applications: have a Kafka topic each.
        replica: end of the cluster's log; None = this broker is no node of a cluster.
        audit: is told of changes; None = the log of messages, or without a ledger that of events.
        ledger: users, keys, and changes that wait for the log; None = this broker keeps nothing.
        access: decides who is let in; None = it has no files.
        listeners: of the broker.
        live: settings in force; None = they cannot be read again.
        reload: has everything read its files again; what failed by part, and why.

    Attributes:
        service: answers.
        identity: users, keys and the audit; None = this broker keeps nothing.
        recorder: looks at the counters each second.
        alarms: looks at thresholds.
        pipelines: looks at what pipelines have told of themselves.
    """

    def __init__(
        self,
        services: Services,
        config: Config,
        *,
        version: str,
        metrics: Metrics,
        bans: BanKeeper,
        is_superuser: Callable[[str | None], bool],
        phase: Callable[[], Phase],
        traces: Traces | None = None,
        forwarders: ForwarderService,
        access: AccessControl | None = None,
        listeners: Sequence[Listener] = (),
        live: LiveSettings | None = None,
        reload: Callable[[], dict[str, str]] = dict,
        applications: Applications,
        replica: Replica | None = None,
        audit: AuditHook | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        clock = SystemClock()
        node = config.node.name
        table = LiveTable(
            services.registry.live,
            services.clock.monotonic_us,
            node=node,
            is_alone=services.peers is None,
        )
        self.recorder = Recorder(services)
        self.pipelines = PipelineWatch(
            metrics,
            Path(config.storage.path),
            end=lambda: services.database.last_offset,
            now_us=services.clock.wall_us,
        )
        self.alarms = AlarmWatch(
            services,
            config,
            lambda: self.recorder.lag_us,
            ForwarderReadings(forwarders),
            PipelineReadings(self.pipelines),
        )
        text = MetricsText(metrics, version=version, backend=config.storage.backend)
        self._reports = NodeReports(services)
        self._nodes = NodeOperations(
            services,
            self.recorder,
            reports=self._reports,
            node=node,
            version=version,
            started_us=clock.now_us(),
            exposition=SteppedExposition(text, services.clock.monotonic_us),
            phase=phase,
        )
        self._tokens = TokenOperations(services, config.auth.token_store, clock)
        operations: list[Operations] = [
            SessionOperations(services, table, is_superuser=is_superuser),
            SessionPartOperations(services),
            SessionSubscriptionOperations(services, is_superuser=is_superuser),
            SubscriptionOperations(services, table, is_superuser=is_superuser),
            MessageOperations(services),
            PublishOperations(services),
            ListenerOperations(
                listeners,
                services.refusal_log.table,
                lambda: services.clock.wall_us() - services.clock.monotonic_us(),
            ),
            AccessOperations(services, access),
            AclOperations(services, access),
            self._tokens,
            ConfigOperations(live, reload),
            self._nodes,
            ClusterOperations(replica, config.cluster.dead_after),
            BanOperations(bans, clock),
            FilterOperations(services),
            StorageOperations(services),
            PipelineOperations(services),
            ForwarderOperations(forwarders),
            ApplicationOperations(applications),
            TimelineOperations(services),
            WatchOperations(services, self.recorder, self.alarms),
            TraceOperations(traces or Traces(services.registry, clock)),
        ]
        self.identity: IdentityOperations | None = None
        if ledger is not None:
            trail = AuditTrail(services, ledger.file)
            audit = audit or trail
            self.identity = IdentityOperations(ledger, trail)
            operations.append(self.identity)
        self.service = AdminService(operations, audit=audit or AuditLog(), clock=clock)

    @property
    def parts(self) -> list[Part]:
        """What of it lives and ends with the process."""
        return [self._tokens] if self.identity is None else [self.identity, self._tokens]

    async def tell_nodes(self) -> None:
        """Tell the other nodes of the cluster of this one, again and again, for ever."""
        await self._reports.run(self._nodes.now)

    def reload(self, config: Config) -> None:
        """Take the settings that need no restart."""
        self.alarms.reload(config.alarms)
