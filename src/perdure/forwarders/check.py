"""Whether a forwarder can be used as it is set, without a broker that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from perdure.config.plugged import load as load_plugged
from perdure.config.schema import FORWARDER_TYPES, ForwarderConfig, type_of
from perdure.forwarders.counts import Counts
from perdure.forwarders.dead_letter import DeadLetters
from perdure.forwarders.output import Context, OutputOpener
from perdure.forwarders.selection import Selection
from perdure.observe.logs import get_logger
from perdure.observe.metrics import Metrics

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.publish.path import PublishPath
    from perdure.forwarders.session import DurableSession


def opener_of(name: str, settings: ForwarderConfig) -> OutputOpener:
    """What makes the output of a forwarder.

    Raises:
        ConfigError: a package is missing.
    """
    kind = type_of(settings)
    line = FORWARDER_TYPES[kind]
    opener: OutputOpener = load_plugged(
        line.opens,
        setting=f"forwarders.{name}.type",
        what=f"a forwarder of type {kind}",
        extra=line.extra,
    )
    return opener


def check_forwarder(name: str, settings: ForwarderConfig) -> None:
    """Find what keeps a forwarder from being made; its target is not asked.

    Raises:
        ConfigError: it cannot be used.
    """
    context = Context(
        name=name,
        origin="0" * 16,
        # An output touches none of these before it is opened (``Output``).
        core=cast("BrokerCore", None),
        publish_path=cast("PublishPath", None),
        session=cast("DurableSession", None),
        counts=Counts(Metrics(), name),
        log=get_logger("forwarders"),
    )
    Selection(settings, setting=context.setting)
    DeadLetters(settings, context)
    opener_of(name, settings)(settings, context)
