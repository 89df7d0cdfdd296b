"""From the configuration's sections to one listener's settings."""

from __future__ import annotations

import pytest

from perdure.config.schema import Listener, MqttConfig, SessionConfig
from perdure.errors import ConfigError
from perdure.net.settings import listener_settings, split_bind


@pytest.mark.parametrize(
    ("bind", "expected"),
    [
        ("127.0.0.1:1884", ("127.0.0.1", 1884)),
        ("localhost", ("localhost", 1883)),
        ("localhost:", ("localhost", 1883)),
        (":0", ("", 0)),
        ("*:1", ("", 1)),
        ("*", ("", 1883)),
        ("", ("", 1883)),
        ("[::1]:65535", ("::1", 65535)),
        ("[::]", ("::", 1883)),
        ("::1", ("::1", 1883)),
    ],
)
def test_bind(bind: str, expected: tuple[str, int]) -> None:
    assert split_bind(bind, 1883, path="listeners.tcp.bind") == expected


@pytest.mark.parametrize("bind", ["a:b", "a:65536", "a:-1", "[::1", "[::1]1883", "a:1²"])
def test_bad_bind_names_the_setting(bind: str) -> None:
    with pytest.raises(ConfigError) as failure:
        split_bind(bind, 1883, path="listeners.tcp.bind")
    assert failure.value.path == "listeners.tcp.bind"


def test_a_plain_listener() -> None:
    settings = listener_settings(
        "ws",
        Listener(bind="0.0.0.0", connections_max=7, backlog=9, path="/x", proxy_protocol=True),
        mqtt=MqttConfig(packet_size_max=5000, connect_timeout_ms=1500),
        session=SessionConfig(outbound_buffer_bytes=8192),
    )
    assert settings.name == "ws:0.0.0.0"
    assert (settings.host, settings.port) == ("0.0.0.0", 8083)
    assert (settings.connections_max, settings.backlog) == (7, 9)
    assert (settings.path, settings.proxy_protocol) == ("/x", True)
    assert settings.message_bytes_max == 5005
    assert settings.handshake_timeout_s == 1.5
    assert (settings.write_high_bytes, settings.write_low_bytes) == (8192, 2048)
    assert settings.tls is None
    assert settings.setting == "listeners.ws"


def test_web_origins() -> None:
    def origins(*given: str) -> tuple[str, ...] | None:
        listener = Listener(origins=given)
        return listener_settings("ws", listener, mqtt=MqttConfig(), session=SessionConfig()).origins

    assert origins() is None
    assert origins("https://app.example", "null") == ("https://app.example", "null")


def test_a_tls_listener_needs_its_files() -> None:
    values = {"certificate": "a.pem", "private_key": "a.key"}
    for missing in values:
        given = {name: value for name, value in values.items() if name != missing}
        with pytest.raises(ConfigError) as failure:
            listener_settings("tls", Listener(**given), mqtt=MqttConfig(), session=SessionConfig())
        assert failure.value.path == f"listeners.tls.{missing}"
    config = Listener(
        bind=":1", certificate="a.pem", private_key="a.key", require_client_certificate=True
    )
    settings = listener_settings(
        "wss", config, mqtt=MqttConfig(), session=SessionConfig(), name="secure"
    )
    assert settings.name == "secure"
    assert settings.tls is not None
    assert settings.tls.require_client_certificate
    assert settings.tls.path == "listeners.wss"
