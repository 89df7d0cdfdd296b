"""What an operator does to the topic while a node uses it, and what the node says."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from perdure.errors import ConfigError, LogShorter, LogTruncated, StorageUnavailable
from perdure.storage.kafka import KafkaLog, KafkaSettings
from tests import servers
from tests.contract.logs import Collected
from tests.support.bounds import HANG_S

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def settings() -> KafkaSettings:
    """A topic of its own."""
    return KafkaSettings(servers.kafka().servers, servers.kafka_topic(), replicas=1)


@pytest.fixture
def admin(settings: KafkaSettings) -> AdminClient:
    return AdminClient({"bootstrap.servers": settings.servers})


@pytest_asyncio.fixture
async def end(settings: KafkaSettings) -> AsyncIterator[KafkaLog]:
    opened = await KafkaLog.open(settings)
    yield opened
    await opened.close()


def change(admin: AdminClient, settings: KafkaSettings, name: str, value: str) -> None:
    """What ``kafka-configs.sh --alter`` does."""
    topic = ConfigResource(ResourceType.TOPIC, settings.topic)
    operation = AlterConfigOpType.SET
    topic.add_incremental_config(ConfigEntry(name, value, incremental_operation=operation))
    admin.incremental_alter_configs([topic])[topic].result(HANG_S)


async def started(end: KafkaLog, count: int) -> Collected:
    """A reader that has got so many records, which were submitted."""
    reader = Collected()
    end.start(reader, 0)
    for number in range(count):
        end.submit(b"%d" % number)
    await reader.wait(count)
    return reader


async def test_a_topic_that_takes_less_than_it_did(
    admin: AdminClient, settings: KafkaSettings, end: KafkaLog
) -> None:
    reader = await started(end, 1)
    change(admin, settings, "max.message.bytes", "2000")
    while reader.error is None:  # until the broker has read its new setting
        try:
            end.submit(bytes(5000))
        except StorageUnavailable:
            break
        count = len(reader.got)
        await reader.wait_for_any(count)
    error = await reader.wait_failed()
    assert isinstance(error, StorageUnavailable)
    assert "for its size" in error.message
    assert "max.message.bytes" in error.hint
    # What was submitted behind it must not enter without it.
    with pytest.raises(StorageUnavailable):
        end.submit(b"x")


async def test_a_topic_that_was_deleted(
    admin: AdminClient, settings: KafkaSettings, end: KafkaLog
) -> None:
    reader = await started(end, 3)
    position = reader.got[-1].position + 1
    admin.delete_topics([settings.topic])[settings.topic].result(HANG_S)
    end.submit(b"a heartbeat")
    error = await reader.wait_failed()
    assert isinstance(error, StorageUnavailable)
    assert "does not exist any more" in error.message
    assert "deleted" in error.hint
    # The next log of that name is another one, and is not taken for it.
    again = await KafkaLog.open(settings)
    behind = Collected()
    again.start(behind, position)
    found = await behind.wait_failed()
    await again.close()
    assert isinstance(found, LogShorter)
    assert "another topic" in found.message


async def test_a_topic_that_went_on_without_a_node(settings: KafkaSettings, end: KafkaLog) -> None:
    reader = await started(end, 5)
    await end.trim(reader.got[4].position)
    late = await KafkaLog.open(settings)
    behind = Collected()
    late.start(behind, reader.got[1].position)
    error = await behind.wait_failed()
    await late.close()
    assert isinstance(error, LogTruncated)
    assert "checkpoint" in error.hint


async def test_a_topic_whose_settings_became_wrong_is_refused_at_the_next_start(
    admin: AdminClient, settings: KafkaSettings, end: KafkaLog
) -> None:
    change(admin, settings, "message.timestamp.type", "CreateTime")
    with pytest.raises(ConfigError, match=r"message\.timestamp\.type is CreateTime") as refused:
        await KafkaLog.open(settings)
    assert settings.topic in refused.value.hint
