"""Where messages go that a target refuses for good: a topic of this broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from perdure.errors import ConfigError, PerdureError
from perdure.forwarders.mapping import user_properties
from perdure.forwarders.selection import LEVELS_MAX
from perdure.model import Message
from perdure.mqtt.encode import forward_properties, properties_from_forward
from perdure.topic.names import validate_topic_name

if TYPE_CHECKING:
    from perdure.config.schema import ForwarderConfig
    from perdure.forwarders.output import Context, Refusal


@final
class DeadLetters:
    """Publishes refused messages, with QoS 1, to the forwarder's dead-letter topic.

    Each carries the user properties ``topic``, ``offset`` and ``reason`` before its own. It is in
    the batch that also moves the cursor past it.

    Args:
        settings: of the forwarder.
        context: of the forwarder.

    Raises:
        ConfigError: the topic cannot be used.
    """

    def __init__(self, settings: ForwarderConfig, context: Context) -> None:
        self._context = context
        self._topic = settings.dead_letter.replace("{name}", context.name)
        if self._topic:
            try:
                validate_topic_name(self._topic, levels_max=LEVELS_MAX)
            except PerdureError as error:
                path = f"{context.setting}.dead_letter"
                raise ConfigError(error.message, path=path) from None

    def put(self, refusal: Refusal) -> None:
        """Publish a refused message."""
        if not self._topic:
            return
        message, context = refusal.message, self._context
        told = (
            ("topic", message.topic),
            ("offset", str(message.offset)),
            ("reason", refusal.reason[:1000]),
        )
        properties = properties_from_forward(message.properties).copy()
        properties.user_properties = (*told, *user_properties(message))
        core = context.core
        core.pipeline.now_us = core.clock.now_us()
        context.session.take(
            Message(
                self._topic,
                message.payload,
                1,
                publisher=context.session.client_id,
                properties=forward_properties(properties),
                published_at_us=core.pipeline.published_us(),
            )
        )
        core.pipeline.schedule()
