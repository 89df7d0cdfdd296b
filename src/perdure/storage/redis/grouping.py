"""One ``append`` of many clients as one command for each client."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perdure.storage.device_queue import Appended, NewEntry, check_append
from perdure.storage.redis.client import RedisClient
from perdure.storage.redis.commands import Command
from perdure.storage.redis.replies import appended_of


async def append_grouped(
    client: RedisClient,
    entries: Sequence[NewEntry],
    build: Callable[[str, list[NewEntry]], Command],
    *,
    limit: int,
) -> list[Appended]:
    """Send the entries, the clients' groups in one batch; a result for each entry.

    Args:
        build: (client id, its entries) -> command.
    """
    check_append(entries, limit=limit)
    groups: dict[str, list[NewEntry]] = {}
    for new in entries:
        groups.setdefault(new.client_id, []).append(new)
    replies = await client.execute([build(name, group) for name, group in groups.items()])
    results = {name: iter(appended_of(reply)) for name, reply in zip(groups, replies, strict=True)}
    return [next(results[new.client_id]) for new in entries]
