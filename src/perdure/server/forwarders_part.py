"""The forwarders of a broker, with who it is to others and where the added ones are kept."""

from __future__ import annotations

from pathlib import Path

from perdure.broker.broker import Broker
from perdure.config.schema import Config
from perdure.forwarders.applications import Applications
from perdure.forwarders.declarations import DeclaredByClients
from perdure.forwarders.definitions import FILE_NAME
from perdure.forwarders.keeping import ClusterKeeper, FileKeeper
from perdure.forwarders.origin import origin_of
from perdure.forwarders.service import ForwarderService
from perdure.observe.logs import get_logger


def make_forwarders(config: Config, broker: Broker) -> tuple[ForwarderService, Applications]:
    """The forwarders and applications of a broker, which is told its identity.

    Raises:
        ConfigError: one cannot be used.
    """
    services = broker.services
    path = Path(config.storage.path) / FILE_NAME if config.storage.traits.is_kept else None
    in_cluster = services.peers is not None
    services.origin = origin_of(config)
    applications = Applications(config.applications)
    service = ForwarderService(
        services,
        {**config.forwarders, **applications.configured()},
        keeper=ClusterKeeper(services.notices) if in_cluster else FileKeeper(path),
        origin=services.origin,
        log=get_logger("forwarders"),
    )
    applications.use(service)
    if applications.from_clients:
        log = get_logger("forwarders")
        services.clients_declare = DeclaredByClients(services, applications, log)
    return service, applications
