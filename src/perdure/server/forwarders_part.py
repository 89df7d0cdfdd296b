"""The forwarders of a broker, with who it is to others and where the added ones are kept."""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path
from typing import Final

from perdure.broker.auth.key_file import KEY_BYTES, load_or_create_key
from perdure.broker.broker import Broker
from perdure.config.schema import Config
from perdure.forwarders.applications import Applications
from perdure.forwarders.declarations import DeclaredByClients
from perdure.forwarders.definitions import FILE_NAME
from perdure.forwarders.service import ForwarderService
from perdure.observe.logs import get_logger

ORIGIN_FILE: Final = "origin.key"
"""In the data directory: what this broker's identity is made of."""


def make_forwarders(config: Config, broker: Broker) -> tuple[ForwarderService, Applications]:
    """The forwarders and applications of a broker, which is told its identity.

    Raises:
        ConfigError: one cannot be used.
    """
    services = broker.services
    path = Path(config.storage.path) if config.storage.traits.is_kept else None
    key = secrets.token_bytes(KEY_BYTES)
    if path is not None:
        key = load_or_create_key(path / ORIGIN_FILE, key)
    if config.cluster.kafka:
        key = config.cluster.name.encode()  # its nodes are one broker to others
    services.origin = hashlib.blake2b(key, digest_size=8).hexdigest()
    applications = Applications(config.applications)
    service = ForwarderService(
        services,
        {**config.forwarders, **applications.configured()},
        path=path / FILE_NAME if path is not None else None,
        origin=services.origin,
        log=get_logger("forwarders"),
    )
    applications.use(service)
    if applications.from_clients:
        log = get_logger("forwarders")
        services.clients_declare = DeclaredByClients(services, applications, log)
    return service, applications
