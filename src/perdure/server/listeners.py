"""The configured listeners, and what their sections say for others."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from perdure.broker.broker import Broker
from perdure.broker.runtime.stream import ConnectionFactory
from perdure.config.listener_kinds import LISTENER_KINDS
from perdure.config.schema import Config, LimitsConfig
from perdure.errors import PerdureError
from perdure.net.admission import Admission
from perdure.net.listener import Listener
from perdure.net.settings import ListenerSettings, listener_settings
from perdure.observe.metrics import Metrics

_OWN_LIMITS: Final = ("publish_rate", "publish_bytes_rate", "subscribe_rate")


def make_listeners(
    config: Config,
    broker: Broker,
    admission: Admission,
    metrics: Metrics,
    *,
    wrap: Callable[[ConnectionFactory], ConnectionFactory] = lambda made: made,
) -> list[Listener]:
    """The listeners that are enabled.

    Args:
        config, broker, admission, metrics: what they are made of.
        wrap: given what makes connections, returns what does it instead.
    """
    return [
        Listener(
            _settings(config, kind, section),
            wrap(functools.partial(broker.connection, durability=section.durability)),
            admission=admission,
            metrics=metrics,
            unexpected_errors=broker.services.unexpected_errors,
            turn_budget=broker.services.turn_budget,
        )
        for kind, section in _enabled(config)
    ]


def open_listeners(listeners: list[Listener]) -> None:
    """Start all listeners, or none.

    Raises:
        PerdureError: one could not be started; those started before it are stopped again.
    """
    started: list[Listener] = []
    try:
        for listener in listeners:
            listener.start()
            started.append(listener)
    except PerdureError:
        for listener in started:
            listener.stop_accepting()
        raise


def listener_limits(config: Config) -> dict[str, LimitsConfig]:
    """Limits of the listeners that have some of their own, by the listener's name."""
    found: dict[str, LimitsConfig] = {}
    for kind, section in _enabled(config):
        own = {name: value for name in _OWN_LIMITS if (value := getattr(section, name)) >= 0}
        if own:
            found[_settings(config, kind, section).name] = msgspec.structs.replace(
                config.limits, **own
            )
    return found


def certificate_listeners(config: Config) -> list[str]:
    """Names of the listeners on which a client certificate's common name is the user."""
    return [
        _settings(config, kind, section).name
        for kind, section in _enabled(config)
        if section.username_from_certificate
    ]


def listener_chains(config: Config) -> dict[str, tuple[str, ...]]:
    """Chains of the listeners that have one of their own, by the listener's name."""
    return {
        _settings(config, kind, section).name: section.auth_chain
        for kind, section in _enabled(config)
        if section.auth_chain
    }


def _enabled(config: Config) -> Iterator[tuple[str, Any]]:
    for kind in LISTENER_KINDS:
        for section in getattr(config.listeners, kind):
            if section.enabled:
                yield kind, section


def _settings(config: Config, kind: str, section: Any) -> ListenerSettings:
    return listener_settings(kind, section, mqtt=config.mqtt, session=config.session)
