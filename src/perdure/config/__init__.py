"""The configuration: its sections, and how it is read from file, environment and flags."""

from perdure.config.load import Loaded, changes, load
from perdure.config.schema import (
    AuthConfig,
    Config,
    DurabilityLevel,
    LimitsConfig,
    Listener,
    ListenersConfig,
    LogConfig,
    MetricsConfig,
    MqttConfig,
    NodeConfig,
    RetentionConfig,
    RocksdbConfig,
    SessionConfig,
    SharedConfig,
    StorageConfig,
    SysConfig,
)

__all__ = [
    "AuthConfig",
    "Config",
    "DurabilityLevel",
    "LimitsConfig",
    "Listener",
    "ListenersConfig",
    "Loaded",
    "LogConfig",
    "MetricsConfig",
    "MqttConfig",
    "NodeConfig",
    "RetentionConfig",
    "RocksdbConfig",
    "SessionConfig",
    "SharedConfig",
    "StorageConfig",
    "SysConfig",
    "changes",
    "load",
]
