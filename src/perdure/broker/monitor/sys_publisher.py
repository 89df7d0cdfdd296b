"""``$SYS/broker/...``: what the broker tells of itself, under Mosquitto's names.

The values live in memory and are never written: they are old after a restart anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from perdure.model import Message
from perdure.observe.sys_topic_table import ROOT
from perdure.topic.matching import matches

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.monitor.gauges import Gauges
    from perdure.observe.sys_topics import SysTopics


@final
class SysPublisher:
    """Publishes the ``$SYS`` topics whose value has changed.

    Args:
        core: what every part stands on.
        topics: computes the values.
        gauges: brought up to date before that.
        interval_s: time between two updates, seconds; 0 = off.
    """

    def __init__(
        self, core: BrokerCore, topics: SysTopics, gauges: Gauges, *, interval_s: int
    ) -> None:
        self._core = core
        self._topics = topics
        self._gauges = gauges
        self._interval_us = interval_s * 1_000_000
        self._retained: dict[str, Message] = {}
        self._stopped: bool = False

    def start(self) -> None:
        """Publish now, and then at each interval."""
        if self._interval_us:
            self._publish()

    def stop(self) -> None:
        """Publish nothing more."""
        self._stopped = True

    def retained(self, topic_filter: str) -> list[Message]:
        """The current values whose topic matches a filter."""
        if not topic_filter.startswith("$SYS"):
            return []
        return [m for topic, m in self._retained.items() if matches(topic_filter, topic)]

    def tell(self, name: str, payload: bytes) -> None:
        """Publish one value below ``$SYS/broker/`` now, and give it to who subscribes later."""
        if not self._stopped and self._interval_us:
            core = self._core
            core.pipeline.now_us = core.clock.now_us()
            self._send(f"{ROOT}/{name}", payload, core.pipeline.published_us())

    def _publish(self) -> None:
        if self._stopped:
            return
        core = self._core
        core.pipeline.now_us = core.clock.now_us()
        published_us = core.pipeline.published_us()
        self._gauges.update()
        changes = self._topics.changes(core.metrics, now_us=core.clock.monotonic_us())
        for topic, value in changes:
            self._send(topic, value.encode(), published_us)
        core.scheduler.call_later(self._interval_us, self._publish)

    def _send(self, topic: str, payload: bytes, published_us: int) -> None:
        message = Message(topic, payload, 0, True, "", b"", 0, published_us)
        self._retained[topic] = message
        # Where nobody listens it would end a turn, and have a node that rests read at once for a
        # second: two fifths of what it costs under load.
        if self._core.router.match(topic):
            self._core.pipeline.dispatch(message)
