"""The sections of the configuration: names, types, defaults, units.

One module for each section. Every room takes its own section and never the whole; only ``server``
holds ``Config``. Sections are frozen: a reload makes a new ``Config``. Durations and sizes are
ints in the unit that the name ends with (or that the annotation states) and may be written
``30s`` or ``64MiB``. The reference page is generated from here (``config.reference``).
"""

from perdure.config.schema.alarms import AlarmsConfig
from perdure.config.schema.auth import AuthConfig
from perdure.config.schema.auth_methods import AUTH_METHODS, LookupConfig, MethodConfig
from perdure.config.schema.backup import BackupConfig
from perdure.config.schema.cluster import ClusterConfig
from perdure.config.schema.config import Config, NodeConfig
from perdure.config.schema.forwarders import (
    FORWARDER_TYPES,
    ForwarderConfig,
    KafkaForwarderConfig,
    MqttForwarderConfig,
    type_of,
)
from perdure.config.schema.http import HttpConfig
from perdure.config.schema.limits import LimitsConfig
from perdure.config.schema.listeners import Listener, ListenersConfig
from perdure.config.schema.mqtt import MqttConfig
from perdure.config.schema.observe import LogConfig, MetricsConfig, SysConfig
from perdure.config.schema.pipeline import (
    ArchiveConfig,
    LearnConfig,
    LogSourceConfig,
    MaintainConfig,
    PayloadConfig,
    PipelineConfig,
    StatsConfig,
    TablesConfig,
)
from perdure.config.schema.registry import RegistryConfig
from perdure.config.schema.replay import ReplayConfig
from perdure.config.schema.retention import RetentionConfig
from perdure.config.schema.section import DAY_S, GIB, KIB, MIB, Section
from perdure.config.schema.session import SessionConfig
from perdure.config.schema.shared import SharedConfig
from perdure.config.schema.storage import (
    DurabilityLevel,
    PostgresConfig,
    RedisConfig,
    RocksdbConfig,
    ServerConfig,
    StorageConfig,
)

__all__ = [
    "AUTH_METHODS",
    "DAY_S",
    "FORWARDER_TYPES",
    "GIB",
    "KIB",
    "MIB",
    "AlarmsConfig",
    "ArchiveConfig",
    "AuthConfig",
    "BackupConfig",
    "ClusterConfig",
    "Config",
    "DurabilityLevel",
    "ForwarderConfig",
    "HttpConfig",
    "KafkaForwarderConfig",
    "LearnConfig",
    "LimitsConfig",
    "Listener",
    "ListenersConfig",
    "LogConfig",
    "LogSourceConfig",
    "LookupConfig",
    "MaintainConfig",
    "MethodConfig",
    "MetricsConfig",
    "MqttConfig",
    "MqttForwarderConfig",
    "NodeConfig",
    "PayloadConfig",
    "PipelineConfig",
    "PostgresConfig",
    "RedisConfig",
    "RegistryConfig",
    "ReplayConfig",
    "RetentionConfig",
    "RocksdbConfig",
    "Section",
    "ServerConfig",
    "SessionConfig",
    "SharedConfig",
    "StatsConfig",
    "StorageConfig",
    "SysConfig",
    "TablesConfig",
    "type_of",
]
