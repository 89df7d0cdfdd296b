"""Applications: names of topics, declarations, and what a Kafka consumer reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.config.schema.applications import ApplicationsConfig
from perdure.errors import ConfigError
from perdure.forwarders.applications import Applications, forwarder_name, topic_name
from perdure.forwarders.definitions import bind_settings
from perdure.forwarders.kafka.output import TOPIC_PATTERN
from perdure.forwarders.selection import Selection

CONFIG = ApplicationsConfig(bootstrap="127.0.0.1:1")


@given(st.sets(st.text(min_size=1, max_size=300), min_size=2, max_size=5))
def test_each_application_has_a_topic_of_its_own_that_kafka_takes(names: set[str]) -> None:
    topics = {topic_name("perdure.app.", name) for name in names}
    assert len(topics) == len(names)
    # Kafka takes a dot and an underscore for the same letter, and refuses the second topic.
    assert len({topic.replace(".", "_") for topic in topics}) == len(names)
    assert all(TOPIC_PATTERN.fullmatch(topic) for topic in topics)
    for name in names:
        bind_settings(forwarder_name(name), {"type": "kafka"})


def test_plain_names_are_kept() -> None:
    assert topic_name("perdure.app.", "billing_2-b") == "perdure.app.billing_2-b"
    assert forwarder_name("billing") == "app-billing"
    assert topic_name("p.", "a.b") != topic_name("p.", "a_b")


def test_a_shared_subscription_is_a_filter_and_a_consumer_group() -> None:
    _, settings = Applications(CONFIG).forwarder("desk", ["$share/night/alarms/#", "alarms/#"])
    assert settings["filter"] == ["alarms/#"]
    assert settings["groups"] == ["night"]
    assert settings["key"] == "publisher"


@pytest.mark.parametrize("declared", ["billing", "=a/#", "billing=a/#/b", "x=$share/g"])
def test_a_declaration_that_cannot_be_used_is_refused(declared: str) -> None:
    config = ApplicationsConfig(bootstrap="127.0.0.1:1", declared=(declared,))

    def declare() -> None:
        for settings in Applications(config).configured().values():
            Selection(settings, setting="s")

    with pytest.raises(ConfigError):
        declare()


def test_without_kafka_there_are_none() -> None:
    with pytest.raises(ConfigError, match="no Kafka"):
        Applications(ApplicationsConfig()).forwarder("x", ["a"])
