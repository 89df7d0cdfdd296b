"""What the sections of listeners say."""

from __future__ import annotations

import msgspec

from perdure.config.schema import Config, LimitsConfig, Listener, ListenersConfig
from perdure.server.listeners import certificate_listeners, listener_limits


def test_certificates_name_users_only_where_that_is_set() -> None:
    named = Listener(
        bind="127.0.0.1:8883",
        certificate="server.pem",
        private_key="server.key",
        username_from_certificate=True,
    )
    plain = Listener(bind="127.0.0.1:8884")
    closed = Listener(bind="127.0.0.1:8885", username_from_certificate=True, enabled=False)
    config = Config(listeners=ListenersConfig(tls=(named, plain), wss=(closed,)))
    assert len(certificate_listeners(config)) == 1
    assert "8883" in certificate_listeners(config)[0]
    assert certificate_listeners(Config()) == []


def test_limits_of_a_listener_stand_in_for_those_of_the_broker() -> None:
    listeners = ListenersConfig(
        tcp=(
            Listener(bind="127.0.0.1:1", publish_rate=0, subscribe_rate=7),
            Listener(bind="127.0.0.1:2"),
        )
    )
    limits = LimitsConfig(publish_rate=5, publish_bytes_rate=6, sessions_max=9)
    found = listener_limits(Config(listeners=listeners, limits=limits))
    assert found == {
        "tcp:127.0.0.1:1": msgspec.structs.replace(limits, publish_rate=0, subscribe_rate=7)
    }
