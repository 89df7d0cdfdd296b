"""Applications: clients with a Kafka topic of their own, filled by a forwarder.

An application is a name and topic filters. Its forwarder writes every message that matches to the
topic ``<prefix><name>``, keyed by publisher. Its MQTT clients have their sessions as any client:
both read the same log. A filter ``$share/<group>/<filter>`` names a consumer group for Kafka's
readers: its members share the partitions, and each publisher's messages stay with one, in order.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from perdure.admin.records.applications import Application
from perdure.config.schema import Config, ForwarderConfig, KafkaForwarderConfig
from perdure.config.schema.applications import ApplicationsConfig
from perdure.errors import ConfigError, MqttError
from perdure.forwarders import definitions
from perdure.forwarders.definitions import bind_settings
from perdure.topic.names import parse_shared

if TYPE_CHECKING:
    from perdure.forwarders.service import ForwarderService

NAME_CHARACTERS_MAX: Final = 1024
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]{1,200}")
_PLAIN_FORWARDER: Final = re.compile(r"[a-z0-9_-]{1,50}")
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]+")
_DIGITS: Final = 12
_OF_CLIENTS: Final = ("filter", "groups")
"""What a client that declares an application says of it."""
_LIKE_HASHED: Final = re.compile(rf".*[-_][0-9a-f]{{{_DIGITS}}}")
"""Names that would be taken for those of others: `desk-7-551251e715f0` is what `desk 7` becomes."""


def topic_name(prefix: str, name: str) -> str:
    """The Kafka topic of an application.

    A name that Kafka cannot have, or that Kafka takes for another one's (dots and underscores), has
    its hash behind a dot, as has one that looks as if it had: no two applications share a topic.

    Args:
        prefix: of all.
        name: any text.
    """
    if _is_plain(_PLAIN, name):
        return prefix + name
    return f"{prefix}{_OTHER.sub('-', name)[:150]}.{_hash(name)}"


def forwarder_name(name: str) -> str:
    """The name of an application's forwarder."""
    if _is_plain(_PLAIN_FORWARDER, name):
        return f"app-{name}"
    return f"app-{_OTHER.sub('-', name).lower()[:40]}-{_hash(name)}"


def _is_plain(pattern: re.Pattern[str], name: str) -> bool:
    return pattern.fullmatch(name) is not None and _LIKE_HASHED.fullmatch(name) is None


def _hash(name: str) -> str:
    return hashlib.blake2b(name.encode(), digest_size=_DIGITS // 2).hexdigest()


@final
class Applications:
    """The applications of one broker.

    Args:
        config: where their topics are.
    """

    def __init__(self, config: ApplicationsConfig) -> None:
        self._config = config
        self._service: ForwarderService | None = None
        self._lock = asyncio.Lock()

    def use(self, service: ForwarderService) -> None:
        """The service that runs their forwarders."""
        self._service = service

    @property
    def from_clients(self) -> bool:
        """Whether clients may declare some."""
        return self._config.from_clients and bool(self._config.bootstrap)

    def configured(self) -> Mapping[str, ForwarderConfig]:
        """The forwarders of the applications that the configuration declares.

        Raises:
            ConfigError: a declaration cannot be used.
        """
        found: dict[str, ForwarderConfig] = {}
        for each in self._config.declared:
            name, equals, filters = each.partition("=")
            if not equals:
                raise ConfigError(f"{each!r}: expected name=filter", path="applications.declared")
            key, given = self.forwarder(name.strip(), filters.split())
            if key in found:
                raise ConfigError(f"application {name} twice", path="applications.declared")
            found[key] = bind_settings(key, given)
        return found

    def forwarder(self, name: str, filters: Iterable[str]) -> tuple[str, dict[str, Any]]:
        """Name and settings of an application's forwarder.

        Raises:
            ConfigError: there can be no such application.
        """
        config = self._config
        if not config.bootstrap:
            raise ConfigError(
                "there is no Kafka for applications",
                path="applications.bootstrap",
                hint="set applications.bootstrap to host:port",
            )
        if not 0 < len(name) <= NAME_CHARACTERS_MAX:
            raise ConfigError("the name of an application has 1 to 1024 characters", path="name")
        settings = {
            "type": "kafka",
            "application": name,
            "bootstrap": config.bootstrap,
            "options": list(config.options),
            "topic": topic_name(config.prefix, name),
            "key": "publisher",
            "partitions": config.partitions,
            "replicas": config.replicas,
            "filter": list(dict.fromkeys(_plain_filter(each)[0] for each in filters)),
            "groups": sorted({group for each in filters if (group := _plain_filter(each)[1])}),
        }
        return forwarder_name(name), settings

    async def add(self, name: str, filters: list[str], *, by: str = "") -> bool:
        """Add an application that lasts through restarts, or change its filters.

        Args:
            name, filters: of it.
            by: the client that declares it, which may change no other's; empty = an administrator,
                who may change all.

        Returns:
            Whether it is a new one.

        Raises:
            ConfigError, StorageError: it cannot be.
        """
        assert self._service is not None
        async with self._lock:
            key, given = self.forwarder(name, filters)
            given["declared_by"] = by
            before = self._service.settings_of(key)
            if before is not None:
                if getattr(before, "application", "") != name:
                    raise ConfigError(f"there is a forwarder {key} already", path="name")
                owner = getattr(before, "declared_by", "")
                is_same = all(getattr(before, part) == tuple(given[part]) for part in _OF_CLIENTS)
                if by and by != owner and not is_same:
                    raise ConfigError(
                        f"application {name} is another's",
                        path="name",
                        hint="declare it with the filters that it has, or take another name",
                    )
                given["declared_by"] = owner if by else ""
                if before == bind_settings(key, given):
                    return False  # as it is: nothing stops and starts
            return await self._service.add(key, given)

    async def remove(self, name: str) -> bool:
        """Remove an application; its topic stays. False if there is none.

        Raises:
            ConfigError: it is in the configuration.
        """
        assert self._service is not None
        key = forwarder_name(name)
        if name not in (each.name for each in self.rows()):
            return False
        return await self._service.remove(key)

    def rows(self) -> list[Application]:
        """All applications, by name."""
        assert self._service is not None
        found = []
        for row in self._service.rows():
            settings = self._service.settings_of(row.name)
            if isinstance(settings, KafkaForwarderConfig) and settings.application:
                found.append(
                    Application(
                        name=settings.application,
                        topic=settings.topic,
                        filters=list(settings.filter),
                        consumer_groups=list(settings.groups),
                        forwarder=row.name,
                        state=row.state,
                        lag_messages=row.lag_messages,
                        forwarded=row.forwarded,
                        error=row.error,
                    )
                )
        return sorted(found, key=lambda each: each.name)


def _plain_filter(text: str) -> tuple[str, str]:
    """A topic filter without its group, and the group; empty = it has none.

    Raises:
        ConfigError: it is no filter.
    """
    if not text.startswith("$share/"):
        return text, ""
    try:
        group, plain = parse_shared(text)
    except MqttError as error:
        raise ConfigError(f"{text!r}: {error.message}", path="filter") from None
    return plain, group


def every_forwarder(config: Config) -> dict[str, ForwarderConfig]:
    """The forwarders of a broker by name: its configuration's, those that were added, and those of
    applications.

    Raises:
        ConfigError: one cannot be read.
    """
    kept = definitions.load(Path(config.storage.path) / definitions.FILE_NAME).forwarders
    added = {name: bind_settings(name, given) for name, given in kept.items()}
    applications = Applications(config.applications).configured()
    return {**added, **config.forwarders, **applications}
