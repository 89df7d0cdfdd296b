"""What comes in: a message enters the log, the retained store and the dispatch, as one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, final

from perdure.broker.dispatch.items import OffsetAdvance
from perdure.broker.publish.retained_room import RetainedRoom
from perdure.broker.runtime.turn_budget import BULK_BYTES
from perdure.errors import MqttError, StorageError
from perdure.model import Message, SessionRecord
from perdure.model.reserved import is_reserved
from perdure.mqtt.decode_cache import TOPIC_CACHED_BYTES_MAX, TOPICS_CACHED_MAX
from perdure.mqtt.encode import publish_size
from perdure.mqtt.packets import V5, V311
from perdure.mqtt.reason_codes import QUOTA_EXCEEDED, TOPIC_NAME_INVALID, UNSPECIFIED_ERROR
from perdure.storage.batch import Batch
from perdure.topic.matching import matches
from perdure.topic.names import validate_topic_name

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore


REFUSALS: Final = {
    QUOTA_EXCEEDED: "the broker's storage is full",
    UNSPECIFIED_ERROR: "storage is not available",
}
"""What a client is told when the store takes no messages, by reason code."""

TOPICS_MAX: Final = TOPICS_CACHED_MAX
"""Checked topic names that are remembered: as many as the decoder shares the strings of."""


def refusal_code(error: StorageError) -> int:
    """Reason code of a PUBLISH that is refused because the store has failed."""
    return QUOTA_EXCEEDED if error.code == "storage_full" else UNSPECIFIED_ERROR


@final
class PublishPath:
    """Takes messages, from clients and from the broker itself.

    Args:
        core: what every part stands on.
        record: filters of the QoS 1 and 2 messages that are recorded.
        record_qos0: filters of the QoS 0 messages that are recorded.
    """

    def __init__(
        self, core: BrokerCore, *, record: Sequence[str], record_qos0: Sequence[str]
    ) -> None:
        self._core = core
        self._record = tuple(record)
        self._record_all = "#" in record
        self.record_qos0: tuple[str, ...] = tuple(record_qos0)
        """May be replaced at run time."""
        config = core.mqtt_config
        self.qos_max: int = config.maximum_qos
        self.retain_available: bool = config.retain_available
        self._levels_max: int = config.topic_levels_max
        self.topics: set[str] = set()
        """Topic names that are in order; to be asked before ``check_topic``."""
        self.retained_room = RetainedRoom(core)
        self.disk_full: bool = False
        """The disk budget is used up and its policy is to refuse."""

    def check_topic(self, topic: str) -> None:
        """Check a topic name that is not in ``topics``.

        Raises:
            MqttError: it is none, or has too many levels.
        """
        validate_topic_name(topic, levels_max=self._levels_max)
        if is_reserved(topic):
            raise MqttError(TOPIC_NAME_INVALID, "the broker keeps records of its own there")
        if len(topic) > TOPIC_CACHED_BYTES_MAX:
            return  # 16,384 of 65,535 bytes would be a gigabyte
        if len(self.topics) >= TOPICS_MAX:
            # All of them at once, as the decoder does.
            self.topics.clear()
        self.topics.add(topic)

    def unfit(self, message: Message) -> str:
        """Why no client can publish such a message, in words; empty = it can."""
        limit = self._core.mqtt_config.packet_size_max
        packet_id = 1 if message.qos else 0
        version = V5 if message.properties else V311
        size = publish_size(message, version, message.qos, message.retain, False, packet_id, -1)
        if size > limit:
            return f"a PUBLISH of {size} bytes, and mqtt.packet_size_max is {limit}"
        if message.qos > self.qos_max:
            return f"QoS {message.qos}, and mqtt.maximum_qos is {self.qos_max}"
        if message.retain and not self.retain_available:
            return "a retained message, and mqtt.retain_available is false"
        levels = message.topic.count("/") + 1
        if levels > self._levels_max:
            return f"{levels} topic levels, and mqtt.topic_levels_max is {self._levels_max}"
        return ""

    def take(self, message: Message) -> None:
        """Add a message to the open batch and to this turn's dispatch."""
        core = self._core
        batch = core.committer.batch
        is_recorded = (self._record_all and message.qos != 0) or self.is_recorded(message)
        if is_recorded:
            batch.append(message)
        elif core.peers is not None:
            batch.pass_on(message)
        core.pipeline.dispatch(message)
        if message.retain and not is_reserved(message.topic):
            # A will may have any topic.
            self._retain(batch, message, is_recorded=is_recorded)

    def speaks(self, record: SessionRecord) -> None:
        """Other nodes may have the session of who is about to publish: the open batch says whose
        its messages are, once."""
        self._core.committer.batch.speak(record.client_id, epoch=record.epoch)

    def take_run(self, messages: list[Message], qos: int) -> None:
        """``take`` for messages of one QoS that came together."""
        if not self._record_all or not qos:
            for message in messages:
                self.take(message)
            return
        core = self._core
        batch = core.committer.batch
        batch.extend(messages)
        core.pipeline.dispatch_run(messages)
        for message in messages:
            if message.retain:
                self._retain(batch, message, is_recorded=True)

    def refusal(self) -> int:
        """Reason code if the store takes no messages now, else 0."""
        failure = self._core.committer.failure
        if failure is not None:
            return refusal_code(failure)
        if self.disk_full:
            return QUOTA_EXCEEDED
        return 0

    def _retain(self, batch: Batch, message: Message, *, is_recorded: bool) -> None:
        """Add a message that was just handed to the dispatch to the retained ones."""
        if not message.payload:
            # [MQTT-3.3.1-6] an empty payload clears the topic's retained message.
            batch.delete_retained(message.topic, publisher=message.publisher)
        elif is_recorded:
            batch.put_retained(message)
            if len(message.payload) > BULK_BYTES:  # written twice, and counted once so far
                self._core.committer.log_sync.large_bytes += len(message.payload)
        else:
            # It has no offset, and what is retained needs one: a copy takes it.
            kept = copy_of(message)
            batch.place(kept)
            batch.put_retained(kept)
            self._core.pipeline.dispatch_placed(OffsetAdvance(kept))

    def is_recorded(self, message: Message) -> bool:
        """Whether the log takes a message."""
        if message.qos:
            if self._record_all:
                return True
            filters = self._record
        else:
            filters = self.record_qos0
            if not filters:
                return False
        return any(matches(topic_filter, message.topic) for topic_filter in filters)


def copy_of(message: Message) -> Message:
    """A message to retain, without an offset."""
    return Message(
        message.topic,
        message.payload,
        message.qos,
        True,
        message.publisher,
        message.properties,
        message.expires_at_us,
        message.published_at_us,
    )
