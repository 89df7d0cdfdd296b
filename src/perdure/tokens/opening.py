"""From a place and the name of a layout to a store."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from perdure.errors import ConfigError
from perdure.tokens.embedded import EmbeddedTokens
from perdure.tokens.store import TokenStore

LAYOUTS: Final = (
    "json",
    "packed",
    "hash",
    "partitioned:256",
    "partitioned:65536",
    "planned",
)
"""On Redis: the seed's, in its order, and ours."""

SEED_PREFIX: Final = b"session:"
PLANNED_PREFIX: Final = b"t"
"""Short: it is in the name of each partition."""


async def open_tokens(
    place: str, *, layout: str = "planned", prefix: str = "", expected: int = 0, now_s: int
) -> TokenStore:
    """The store of a place.

    Args:
        place: a Redis URL (``storage.redis.url``), or the path of a file for the embedded store.
        layout: one of ``LAYOUTS``; on Redis alone.
        prefix: of all keys; empty = that of the layout (``session:`` as the seed has it).
        expected: how many tokens there will be, where there are none yet.
        now_s: Unix time, seconds.

    Raises:
        ConfigError: the URL or the login is wrong, or there is no such layout, or it is not for a
            cluster.
        StorageUnavailable: nobody is there, or the file cannot be opened.
    """
    if layout not in LAYOUTS:
        raise ConfigError(f"there is no layout {layout!r}", hint=f"one of {', '.join(LAYOUTS)}")
    if "://" not in place:
        return EmbeddedTokens(Path(place))
    # The driver is an extra.
    from perdure.storage.redis.client import RedisClient
    from perdure.storage.redis.node import Code
    from perdure.storage.redis.url import parse_url
    from perdure.tokens.redis.keyed import HashTokens, JsonTokens, PackedTokens
    from perdure.tokens.redis.partitioned import SWEEP, PartitionedTokens
    from perdure.tokens.redis.planned import PlannedTokens
    from perdure.tokens.redis.scripts import SCRIPTS

    address = parse_url(place)
    digits = {"partitioned:256": 2, "partitioned:65536": 4}.get(layout, 0)
    if digits and address.cluster:
        raise ConfigError(
            f"{layout} is for one server, as the seed names its keys", hint="take planned"
        )
    client = await RedisClient.connect(address, code=Code(scripts=(SWEEP, *SCRIPTS)))
    raw = prefix.encode()
    if digits:
        return PartitionedTokens(client, raw or SEED_PREFIX, digits=digits)
    if layout == "planned":
        store = PlannedTokens(client, raw or PLANNED_PREFIX)
        try:
            await store.open(expected, now_s)
        except BaseException:
            await client.close()
            raise
        return store
    if layout == "json":
        return JsonTokens(client, raw or SEED_PREFIX)
    if layout == "packed":
        return PackedTokens(client, raw or SEED_PREFIX)
    return HashTokens(client, raw or SEED_PREFIX)
