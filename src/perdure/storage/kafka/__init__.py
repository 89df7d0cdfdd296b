"""The ordered log in Kafka: a topic with one partition, on any server with its protocol."""

from perdure.storage.kafka.log import KafkaLog
from perdure.storage.kafka.settings import KafkaSettings

__all__ = ["KafkaLog", "KafkaSettings"]
