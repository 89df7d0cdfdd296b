"""The configuration: its sections here, and in ``config.load`` how it is read.

Rooms that only hold a section do not pay for loading a YAML parser.
"""

from perdure.config.schema import (
    AuthConfig,
    Config,
    DurabilityLevel,
    HttpConfig,
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
    "HttpConfig",
    "LimitsConfig",
    "Listener",
    "ListenersConfig",
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
]
