"""Whether a Redis keeps what it has acknowledged: its settings, and what follows from them.

Redis answers a write once it is in memory; what is on disk by then is a matter of its settings. The
same is asked of every node of a cluster, since each keeps other queues.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from hiredis import ReplyError

from perdure.errors import ConfigError
from perdure.observe.logs import get_logger
from perdure.storage.redis.client import RedisClient
from perdure.storage.redis.commands import Command
from perdure.storage.redis.replies import settings_of

Policy: TypeAlias = Literal["warn", "refuse", "ignore"]
"""What to do about a server that may lose what it has acknowledged."""

LISTPACK_VALUE_MIN: Final = 512
"""``hash-max-listpack-value`` below which ordinary messages make large tables of small hashes."""

log = get_logger("storage")

_NAMES: Final = (
    *("appendonly", "appendfsync", "maxmemory", "maxmemory-policy", "save"),
    *("no-appendfsync-on-rewrite", "hash-max-listpack-value"),
)
_SETTINGS: Final = Command(("CONFIG", "GET", *_NAMES))


def gaps(settings: Mapping[str, str]) -> list[str]:
    """What may be lost, a sentence for each reason; empty = nothing."""
    found = []
    if settings.get("appendonly") != "yes":
        since = "the last snapshot" if settings.get("save") else "its start"
        found.append(f"appendonly is no: when the server ends, all messages since {since} are lost")
    elif settings.get("appendfsync") == "everysec":
        found.append("appendfsync is everysec: a power cut loses the last second")
    elif settings.get("appendfsync") != "always":
        found.append("appendfsync is no: a power cut loses what the kernel has not written yet")
    elif settings.get("no-appendfsync-on-rewrite") == "yes":
        found.append(
            "no-appendfsync-on-rewrite is yes: a power cut during a rewrite loses messages"
        )
    policy = settings.get("maxmemory-policy", "noeviction")
    if settings.get("maxmemory", "0") != "0" and policy != "noeviction":
        found.append(f"maxmemory-policy is {policy}: queues vanish when the memory is full")
    return found


def advice(settings: Mapping[str, str]) -> list[str]:
    """What costs memory needlessly, a sentence for each reason."""
    value = settings.get("hash-max-listpack-value", "")
    if value.isdecimal() and int(value) < LISTPACK_VALUE_MIN:
        cost = "a message above that takes about twice the memory; 2048 is recommended"
        return [f"hash-max-listpack-value is {value}: {cost}"]
    return []


async def look(client: RedisClient, *, compact: bool = True) -> tuple[list[str], list[str]]:
    """Look at the settings of every server: what may be lost, and what costs memory.

    Args:
        client: connected.
        compact: whether the layout is ``compact``, whose memory depends on the settings.
    """
    lost: dict[str, None] = {}
    costs: dict[str, None] = {}
    for reply in await client.on_masters(_SETTINGS):
        if isinstance(reply, ReplyError):
            # Managed servers often forbid CONFIG.
            lost["its settings cannot be read (CONFIG GET is refused)"] = None
            continue
        settings = settings_of(reply)
        lost.update(dict.fromkeys(gaps(settings)))
        if compact:
            costs.update(dict.fromkeys(advice(settings)))
    return list(lost), list(costs)


async def check(client: RedisClient, policy: Policy, *, compact: bool = True) -> list[str]:
    """Tell what ``look`` finds to the log; returns all of it.

    Args:
        client: connected.
        policy: ``refuse`` refuses what may be lost, never what only costs memory.
        compact: see ``look``.

    Raises:
        ConfigError: something may be lost, or it cannot be found out, and the policy is to refuse.
    """
    if policy == "ignore":
        return []
    lost, costs = await look(client, compact=compact)
    if lost and policy == "refuse":
        raise ConfigError(
            f"Redis may lose what it has acknowledged: {'; '.join(lost)}",
            hint="change the server's settings, or set the durability policy to warn",
        )
    for reason in lost:
        log.warning("redis.not_durable", reason=reason)
    for reason in costs:
        log.warning("redis.wasteful", reason=reason)
    return [*lost, *costs]
