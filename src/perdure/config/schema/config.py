"""Everything an operator can set: all sections, and the section `node`."""

from __future__ import annotations

from typing import Annotated, final

import msgspec

from perdure.config.fields import about
from perdure.config.schema.alarms import AlarmsConfig
from perdure.config.schema.applications import ApplicationsConfig
from perdure.config.schema.auth import AuthConfig
from perdure.config.schema.backup import BackupConfig
from perdure.config.schema.cluster import ClusterConfig
from perdure.config.schema.forwarders import Forwarders
from perdure.config.schema.http import HttpConfig
from perdure.config.schema.limits import LimitsConfig
from perdure.config.schema.listeners import ListenersConfig
from perdure.config.schema.mqtt import MqttConfig
from perdure.config.schema.observe import LogConfig, MetricsConfig, SysConfig
from perdure.config.schema.pipeline import PipelineConfig
from perdure.config.schema.registry import RegistryConfig
from perdure.config.schema.replay import ReplayConfig
from perdure.config.schema.retention import RetentionConfig
from perdure.config.schema.section import Section
from perdure.config.schema.session import SessionConfig
from perdure.config.schema.shared import SharedConfig
from perdure.config.schema.storage import StorageConfig


@final
class NodeConfig(Section, frozen=True):
    """This broker."""

    name: Annotated[str, about("Name of this broker, in `$SYS`, logs and metrics.")] = (
        "perdure@localhost"
    )
    advertise: Annotated[
        str,
        about(
            "Where clients reach this node of a cluster, `host:port`; others name it to clients "
            "that they send away (0x9C)."
        ),
    ] = ""


@final
class Config(Section, frozen=True):
    """Everything an operator can set."""

    node: NodeConfig = NodeConfig()
    listeners: ListenersConfig = ListenersConfig()
    mqtt: MqttConfig = MqttConfig()
    session: SessionConfig = SessionConfig()
    storage: StorageConfig = StorageConfig()
    retention: RetentionConfig = RetentionConfig()
    backup: BackupConfig = BackupConfig()
    auth: AuthConfig = AuthConfig()
    limits: LimitsConfig = LimitsConfig()
    shared: SharedConfig = SharedConfig()
    sys: SysConfig = SysConfig()
    log: LogConfig = LogConfig()
    metrics: MetricsConfig = MetricsConfig()
    alarms: AlarmsConfig = AlarmsConfig()
    http: HttpConfig = HttpConfig()
    pipeline: PipelineConfig = PipelineConfig()
    replay: ReplayConfig = ReplayConfig()
    registry: RegistryConfig = RegistryConfig()
    applications: ApplicationsConfig = ApplicationsConfig()
    forwarders: Forwarders = msgspec.field(default_factory=dict)
    cluster: ClusterConfig = ClusterConfig()
