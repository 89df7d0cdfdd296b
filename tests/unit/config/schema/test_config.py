"""The schema: defaults, frozenness, and that every setting describes itself."""

from __future__ import annotations

import msgspec
import pytest

from perdure.config.fields import settings
from perdure.config.schema import MIB, Config, Listener


def test_defaults_are_the_documented_ones() -> None:
    config = Config()
    assert config.listeners.tcp == (Listener(bind="127.0.0.1:1883"),)
    assert config.listeners.tls == config.listeners.ws == config.listeners.wss == ()
    assert config.storage.durability == "fsync"
    assert config.storage.commit_interval_us == 2000
    assert config.mqtt.packet_size_max == 16 * MIB
    assert config.retention.time_s == 7 * 24 * 3600
    assert config.auth.allow_anonymous == "loopback"


def test_defaults_satisfy_their_own_bounds() -> None:
    assert msgspec.convert(msgspec.to_builtins(Config()), Config) == Config()


def test_sections_are_frozen_and_closed() -> None:
    with pytest.raises(AttributeError):
        Config().mqtt.receive_maximum = 5  # type: ignore[misc]
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.convert({"mqtt": {"receive_max": 1}}, Config)


NAMED_BEFORE = {"backup.every", "cluster.dead_after", "storage.outage_max"}
"""Settings whose names are promised to operators as they are."""


@pytest.mark.parametrize("setting", list(settings(Config)), ids=lambda setting: setting.path)
def test_every_setting_describes_itself(setting: object) -> None:
    from perdure.config.fields import Setting

    assert isinstance(setting, Setting)
    assert setting.description.endswith((".", ")."))
    name = setting.path.rsplit(".", 1)[-1]
    for suffix, unit in (("_s", "s"), ("_ms", "ms"), ("_us", "us"), ("_bytes", "bytes")):
        if name.endswith(suffix):
            assert setting.unit == unit
    if setting.unit in {"s", "ms", "us"} and setting.path not in NAMED_BEFORE:
        assert name.endswith(f"_{setting.unit}")
    if setting.choices:
        assert setting.default in setting.choices


OPEN_URLS = {
    "auth.jwt.jwks_url",  # public keys
    "auth.http.url",  # what lets us in is in `header_file`
    "auth.http.acl_url",
    "auth.ldap.url",  # has no login
    "auth.ocsp.url",
    "pipeline.log.url",  # its token is in `token_file`
}


def test_a_url_that_may_hold_a_login_is_shown_to_nobody() -> None:
    urls = {each.path: each.secret for each in settings(Config) if each.path.endswith("url")}
    assert set(urls) > OPEN_URLS
    assert {path for path, secret in urls.items() if not secret} == OPEN_URLS
