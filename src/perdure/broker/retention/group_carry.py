"""What a shared group has still to give out of a generation: put into its private stream, or lost.

Of several nodes the one that serves a group does that, for it alone knows what was given. A group
that no node serves, since none of its members is connected, is taken for the while.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from perdure.broker.retention.dropping import CARRY_PAGE, owed_to_group
from perdure.model import InboxEntry, Message

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.shared.group import SharedGroup
    from perdure.storage.contract import GenerationInfo


def is_served_elsewhere(core: BrokerCore, group: SharedGroup) -> bool:
    """Whether another node has a group."""
    return core.peers is not None and not group.is_served and group.has_elsewhere


async def carry_group(core: BrokerCore, group: SharedGroup, info: GenerationInfo) -> int:
    """Copy what a group that has not come past a generation has still to give out of it, unless
    another node serves it.

    Args:
        core: what every part stands on.
        group: the group.
        info: the generation.

    Returns:
        Messages that were copied.
    """
    count, until = 0, info.until_offset - 1
    async with _taken(core, group, info) as is_taken:
        while is_taken and _is_behind(group, until):
            after = group.position
            page = await core.database.read(
                [group.filter], after_offset=after, until_offset=until, limit=CARRY_PAGE
            )
            if not _is_behind(group, until) or group.position != after:
                continue  # it has given out some of this page meanwhile
            for message in page.messages:
                if message.qos and group.wants(message):
                    entry = _entry(message)
                    core.committer.batch.put_group_entry(group.key, entry)
                    group.give_back(entry)
                    count += 1
            await _move(core, group, page.through_offset)
    return count


async def lose_of_group(core: BrokerCore, group: SharedGroup, info: GenerationInfo) -> int:
    """Move a group that has not come past a generation behind it, unless another node serves it.

    Args:
        core: what every part stands on.
        group: the group.
        info: the generation.

    Returns:
        Messages that it had still to give out.
    """
    lost, until = 0, info.until_offset - 1
    async with _taken(core, group, info) as is_taken:
        while is_taken and _is_behind(group, until):
            after = group.position
            count = await owed_to_group(core, group, info)
            if _is_behind(group, until) and group.position == after:
                # What it gives meanwhile it was not to lose: it was counted where it is now.
                lost += count
                await _move(core, group, until)
    return lost


def _is_behind(group: SharedGroup, until: int) -> bool:
    """Whether this node gives out what a group has, and has not come to an offset."""
    return group.is_served and group.lagging and group.position < until


@asynccontextmanager
async def _taken(core: BrokerCore, group: SharedGroup, info: GenerationInfo) -> AsyncIterator[bool]:
    """Have a group that needs a generation, if only for the while; whether this node has it."""
    if not group.lagging or group.position >= info.until_offset - 1:
        yield False
        return
    was_served = group.is_served
    if not was_served and not (await owed_to_group(core, group, info) and group.serve()):
        yield False
        return
    if core.peers is not None:
        await core.pipeline.committed()  # another node may have taken it first
    yield True
    if not was_served and group.is_served and not group.members:
        group.let_go()
        core.pipeline.schedule()


async def _move(core: BrokerCore, group: SharedGroup, position: int) -> None:
    group.position = position
    core.cursors.group_moved(group, gives=True)
    await core.pipeline.committed()
    await core.yield_to_loop()


def _entry(message: Message) -> InboxEntry:
    return InboxEntry(message.offset, message, qos=message.qos, retain=message.retain)
