"""Topic aliases (5.0, section 3.3.2.3.4) of one connection, one table for each direction.

Invariant: what one side assigns the other resolves, as long as every PUBLISH goes out in the
order in which it was assigned. The tables end with the connection ([MQTT-3.3.2-7]).
"""

from __future__ import annotations

from typing import final

from perdure.errors import MqttError
from perdure.mqtt.errors import ProtocolViolation
from perdure.mqtt.packets import Publish
from perdure.mqtt.reason_codes import TOPIC_ALIAS_INVALID


@final
class InboundAliases:
    """The aliases that the peer assigns.

    Args:
        maximum: the Topic Alias Maximum that we told the peer; 0 = none allowed.
    """

    __slots__ = ("_topics", "maximum")

    def __init__(self, maximum: int) -> None:
        self.maximum: int = maximum
        self._topics: dict[int, str] = {}

    def resolve(self, publish: Publish) -> str:
        """The topic name of a PUBLISH; remembers the alias if it has both.

        Raises:
            MqttError: 0x94, the alias is above the maximum ([MQTT-3.3.2-9]); 0x82, it was
                never assigned (3.3.2.3.4).
        """
        alias = publish.topic_alias
        if not alias:
            return publish.topic
        if alias > self.maximum:
            raise MqttError(TOPIC_ALIAS_INVALID, f"the topic alias {alias} is above {self.maximum}")
        if publish.topic:
            self._topics[alias] = publish.topic
            return publish.topic
        topic = self._topics.get(alias)
        if topic is None:
            raise ProtocolViolation(f"the topic alias {alias} has not been assigned")
        return topic


@final
class OutboundAliases:
    """The aliases that we assign, the least recently used topic giving way.

    Args:
        maximum: the peer's Topic Alias Maximum; 0 = none allowed ([MQTT-3.1.2-27]).
    """

    __slots__ = ("_aliases", "maximum")

    def __init__(self, maximum: int) -> None:
        self.maximum: int = maximum
        self._aliases: dict[str, int] = {}  # in the order of use

    def assign(self, topic: str) -> tuple[int, bool]:
        """The alias to send a PUBLISH with, which must then be sent.

        Returns:
            (alias, omit_topic): 0 = no alias; omit_topic = the peer knows it already.
        """
        aliases = self._aliases
        alias = aliases.pop(topic, 0)
        if alias:
            aliases[topic] = alias
            return alias, True
        if len(aliases) < self.maximum:
            alias = len(aliases) + 1
        elif aliases:
            alias = aliases.pop(next(iter(aliases)))
        else:
            return 0, False
        aliases[topic] = alias
        return alias, False
