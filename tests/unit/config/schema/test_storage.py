"""The section of the storage: what the servers share, and in which order it is told."""

from __future__ import annotations

import pytest

from perdure.config.fields import field_types
from perdure.config.schema import MIB, PostgresConfig, RedisConfig, ServerConfig

SHARED = [
    "durability",
    "connect_timeout_s",
    "command_timeout_s",
    "outage_max_s",
    "pending_bytes_max",
]


@pytest.mark.parametrize(
    ("section", "own"), [(RedisConfig, ["url", "prefix"]), (PostgresConfig, ["url"])]
)
def test_a_server_has_its_own_settings_first(section: type[ServerConfig], own: list[str]) -> None:
    assert list(field_types(section)) == [*own, *SHARED]


def test_both_servers_wait_alike() -> None:
    redis, postgres = RedisConfig(), PostgresConfig()
    assert [getattr(redis, name) for name in SHARED] == ["warn", 30, 15, 30, 64 * MIB]
    assert [getattr(postgres, name) for name in SHARED] == ["warn", 30, 15, 30, 64 * MIB]
