"""What a person is told at the start."""

from __future__ import annotations

from perdure.config.schema import AuthConfig, Config, StorageConfig
from perdure.server.greeting import greeting


def test_greeting() -> None:
    text = greeting(Config(), "1.2", [("tcp", "127.0.0.1:1883"), ("ws", "127.0.0.1:8083")])
    assert "Perdure 1.2" in text
    assert "127.0.0.1:1883 (tcp), 127.0.0.1:8083 (ws)" in text
    assert "fsync" in text
    assert "from this machine only" in text
    assert "every topic" in text


def test_other_settings() -> None:
    config = Config(
        storage=StorageConfig(backend="memory", durability="memory"),
        auth=AuthConfig(allow_anonymous="never", acl_file="acl"),
    )
    text = greeting(config, "1", [])
    assert "nowhere" in text
    assert "in memory only" in text
    assert "with credentials only, with an ACL" in text
