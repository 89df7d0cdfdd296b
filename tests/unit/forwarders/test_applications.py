"""Applications: names of topics, declarations, and what a Kafka consumer reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.config.schema import ForwarderConfig, KafkaForwarderConfig
from perdure.config.schema.applications import ApplicationsConfig
from perdure.errors import ConfigError
from perdure.forwarders.applications import (
    NAME_CHARACTERS_MAX,
    Applications,
    forwarder_name,
    topic_name,
)
from perdure.forwarders.definitions import bind_settings
from perdure.forwarders.kafka.output import TOPIC_PATTERN
from perdure.forwarders.selection import Selection

if TYPE_CHECKING:
    from perdure.forwarders.service import ForwarderService

CONFIG = ApplicationsConfig(bootstrap="127.0.0.1:1")


NAMES = st.text(min_size=1, max_size=300) | st.text("aA.-_ /\u00e9", min_size=1, max_size=60)


def adversaries(name: str) -> set[str]:
    """Names that are made to be taken for another one's."""
    made = {topic_name("", name), forwarder_name(name).removeprefix("app-")}
    made |= {each.replace(old, new) for each in made for old in ".-" for new in "._-/"}
    made |= {name.upper(), name.lower(), name + " ", name.replace(".", "_"), name[:150], name[:40]}
    return {each[:NAME_CHARACTERS_MAX] for each in made if each}


@given(st.sets(NAMES, min_size=2, max_size=5))
@example({"desk 7"})
@example({"x" * 201, "x" * 202, "\ud7ff" * 300})
def test_each_application_has_a_topic_of_its_own_that_kafka_takes(given_names: set[str]) -> None:
    names = given_names.union(*map(adversaries, given_names))
    names = names.union(*map(adversaries, names))
    topics = {topic_name("perdure.app.", name) for name in names}
    assert len(topics) == len(names)
    # Kafka takes a dot and an underscore for the same letter, and refuses the second topic.
    assert len({topic.replace(".", "_") for topic in topics}) == len(names)
    assert all(TOPIC_PATTERN.fullmatch(topic) for topic in topics)
    forwarders = {forwarder_name(name) for name in names}
    assert len(forwarders) == len(names)
    for name in list(forwarders)[:5]:
        bind_settings(name, {"type": "kafka"})


class Service:
    """Keeps settings as the service of forwarders does."""

    def __init__(self) -> None:
        self.kept: dict[str, ForwarderConfig] = {}
        self.added = 0

    def settings_of(self, name: str) -> ForwarderConfig | None:
        return self.kept.get(name)

    async def add(self, name: str, given: dict[str, Any]) -> bool:
        self.added += 1
        is_new = name not in self.kept
        self.kept[name] = bind_settings(name, given)
        return is_new


async def test_a_client_changes_no_application_of_another() -> None:
    service, applications = Service(), Applications(CONFIG)
    applications.use(cast("ForwarderService", service))

    def filters() -> tuple[str, ...]:
        settings = service.settings_of(forwarder_name("billing"))
        assert isinstance(settings, KafkaForwarderConfig)
        return settings.filter

    assert await applications.add("billing", ["meters/#"], by="client a")
    for other in ("client b", "user a"):
        with pytest.raises(ConfigError, match="another's"):
            await applications.add("billing", ["x/#"], by=other)
        assert not await applications.add("billing", ["meters/#"], by=other)  # as it is
    assert (filters(), service.added) == (("meters/#",), 1)
    assert not await applications.add("billing", ["meters/1"], by="client a")
    assert filters() == ("meters/1",)
    await applications.add("billing", ["meters/2"])  # an administrator takes it over
    with pytest.raises(ConfigError):
        await applications.add("billing", ["meters/1"], by="client a")
    assert (filters(), service.added) == (("meters/2",), 3)


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
