"""Whether the server keeps what it has acknowledged: its settings, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from perdure.errors import ConfigError
from perdure.observe.logs import get_logger
from perdure.storage.postgres.pool import Pool, Statement

Policy: TypeAlias = Literal["warn", "refuse", "ignore"]
"""What to do about a server that may lose what it has acknowledged."""

log = get_logger("storage")

_SETTINGS: Final = Statement(
    "SELECT name, setting FROM pg_settings "
    "WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes')"
)


def gaps(settings: Mapping[str, str]) -> list[str]:
    """What may be lost, a sentence for each reason; empty = nothing."""
    found = []
    if settings.get("fsync") == "off":
        found.append("fsync is off: a power cut may destroy the whole database")
    if settings.get("synchronous_commit") == "off":
        found.append(
            "synchronous_commit is off: a crash of the server loses the last moments, "
            "although they were acknowledged"
        )
    if settings.get("full_page_writes") == "off":
        found.append("full_page_writes is off: a power cut may leave torn pages")
    return found


async def check(pool: Pool, policy: Policy) -> list[str]:
    """Look at the server's settings; returns what may be lost.

    Raises:
        ConfigError: something may, and the policy is to refuse.
    """
    if policy == "ignore":
        return []
    settings = {row["name"]: row["setting"] for row in await pool.run(_SETTINGS)}
    found = gaps(settings)
    if found and policy == "refuse":
        raise ConfigError(
            f"PostgreSQL may lose what it has acknowledged: {'; '.join(found)}",
            hint="change the server's settings, or set the durability policy to warn",
        )
    for reason in found:
        log.warning("postgres.not_durable", reason=reason)
    return found
