"""What a shared group has still to give out of a generation, put into its private stream.

Of several nodes the one that serves a group does that, for it alone knows what was given. A group
that no node serves, since none of its members is connected, is taken for the while.
"""

from __future__ import annotations

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
    until = info.until_offset - 1
    if not group.lagging or group.position >= until:
        return 0
    was_served = group.is_served
    if not was_served and not (await owed_to_group(core, group, info) and group.serve()):
        return 0
    if core.peers is not None:
        await core.pipeline.committed()  # another node may have taken it first
    count = 0
    while group.is_served and group.lagging and group.position < until:
        after = group.position
        page = await core.database.read(
            [group.filter], after_offset=after, until_offset=until, limit=CARRY_PAGE
        )
        if not (group.is_served and group.lagging) or group.position != after:
            continue  # it has given out some of this page meanwhile
        for message in page.messages:
            if message.qos and group.wants(message):
                entry = _entry(message)
                core.committer.batch.put_group_entry(group.key, entry)
                group.give_back(entry)
                count += 1
        group.position = page.through_offset
        core.cursors.group_moved(group, gives=True)
        await core.pipeline.committed()
        await core.yield_to_loop()
    if not was_served and group.is_served and not group.members:
        group.let_go()
        core.pipeline.schedule()
    return count


def _entry(message: Message) -> InboxEntry:
    return InboxEntry(message.offset, message, qos=message.qos, retain=message.retain)
