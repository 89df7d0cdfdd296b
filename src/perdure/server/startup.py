"""What a start says of itself: where the data is, what an acknowledgement means, who may come in,
and whether the system gives what the configuration promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from perdure.config.schema import Config, LimitsConfig
from perdure.observe.logs import get_logger
from perdure.server.auth_part import names_in_use

log = get_logger("server")

OTHER_FILES: Final = 128
"""Descriptors beside those of MQTT clients and of the store's tables: listeners, HTTP, tools."""

TABLES_OPEN_MAX: Final = 4_096
"""Reckoned for a store that may keep all tables open."""

CONNECTIONS_MIN: Final = 16
"""So many are let in, however few files may be open."""

MEANINGS: Final = {
    "fsync": "acknowledged = on disk",
    "os": "acknowledged = safe if the broker dies, not if the machine does",
    "memory": "acknowledged = taken, lost if the broker dies",
}


def authentication(config: Config) -> str:
    """Who may come in, in a few words."""
    auth = config.auth
    ways = []
    if auth.password_file:
        ways.append("passwords")
    kinds = (*config.listeners.tls, *config.listeners.wss)
    if any(each.enabled and each.username_from_certificate for each in kinds):
        ways.append("certificates")
    ways += names_in_use(config)
    anonymous = {
        "loopback": "anonymous from this machine",
        "always": "anonymous from everywhere",
        "never": "",
    }[auth.allow_anonymous]
    if anonymous:
        ways.append(anonymous)
    return ", ".join(ways) or "nobody may connect: no way to authenticate is configured"


def reserved_files(config: Config, open_files: int) -> int:
    """Descriptors that are kept from MQTT clients; a quarter where there are few."""
    tables = config.storage.rocksdb.max_open_files if config.storage.traits.is_directory else 0
    return min((tables if tables >= 0 else TABLES_OPEN_MAX) + OTHER_FILES, open_files // 4)


def bounded_by_files(config: Config, open_files: int) -> LimitsConfig:
    """The limits, with no more connections than there are descriptors for.

    Where clients take the last descriptor, the store cannot open its next table.

    Args:
        config: of the broker.
        open_files: that the process may have.
    """
    room = max(CONNECTIONS_MIN, open_files - reserved_files(config, open_files))
    limits = config.limits
    return msgspec.structs.replace(limits, connections_max=min(limits.connections_max, room))


def facts(config: Config, *, open_files: int) -> dict[str, Any]:
    """What the line of a start holds.

    Args:
        config: of the broker.
        open_files: descriptors that the process may have.
    """
    storage = config.storage
    where = str(Path(storage.path).resolve()) if storage.traits.is_kept else "(memory)"
    limits = bounded_by_files(config, open_files)
    who = authentication(config)
    durability = storage.durability if storage.traits.is_kept else "memory"
    return {
        "data": where,
        "backend": storage.backend,
        "durability": durability,
        "authentication": who,
        "access_control": config.auth.acl_file or "everything is allowed",
        "open_files": open_files,
        "connections_max": limits.connections_max,
        "summary": f"data in {where}; {durability}: {MEANINGS[durability]}; {who}; "
        f"up to {limits.connections_max:,} connections ({open_files:,} open files)",
    }


def say_start(config: Config, *, open_files: int) -> None:
    """Log what is about to be served, and what to do where the system gives too little.

    Args:
        config: of the broker.
        open_files: descriptors that the process may have.
    """
    log.info("server.starting", **facts(config, open_files=open_files))
    granted = bounded_by_files(config, open_files).connections_max
    if granted < config.limits.connections_max:
        wanted = config.limits.connections_max + TABLES_OPEN_MAX
        log.warning(
            "server.few_open_files",
            open_files=open_files,
            connections_max=granted,
            configured=config.limits.connections_max,
            hint=f"LimitNOFILE={wanted} in the systemd unit, or `ulimit -Hn {wanted}` before the "
            "start; or a smaller limits.connections_max",
        )
    if config.auth.allow_anonymous == "always":
        log.warning(
            "server.anonymous",
            hint="everybody who reaches a listener may connect; see auth.allow_anonymous",
        )
