"""What groups gave to a member, run by run, until it is settled.

A run is what a group gave at once. A durable member's entries are rows of its private stream. Those
of an ephemeral member are the group's, one row for a run; where a part of a run is settled or goes
back, its entries get rows of their own.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from perdure.model import InboxEntry

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.live_session import LiveSession
    from perdure.storage.batch import Batch


def unsettled(session: LiveSession) -> list[InboxEntry]:
    """What groups gave to a session, was dispatched, and is not settled."""
    if not session.group_runs:
        return []
    outbound = session.outbound
    acked_offset, settled = outbound.acked_offset, outbound.settled_offsets()
    return [
        entry
        for run in session.group_runs
        for entry in run
        if entry.offset > acked_offset and entry.offset not in settled
    ]


def settle(core: BrokerCore, session: LiveSession) -> None:
    """What the cursor has passed is done; where the group kept it, it goes."""
    runs = session.group_runs
    acked_offset = session.outbound.acked_offset
    count = 0
    while count < len(runs) and runs[count][-1].offset <= acked_offset:
        count += 1
    if not session.durable:
        if not core.committer.writable:
            return
        for run in runs[:count]:
            if run[0].qos == 1:
                core.committer.batch.delete_group_run(run[0].group_key, run)
        core.pipeline.schedule()
    del runs[:count]


def part(batch: Batch, session: LiveSession, group_keys: Container[str], offset: int = 0) -> None:
    """What an ephemeral member has not settled gets rows of its own, in place of those of runs.

    Args:
        batch: that does it.
        session: of the member.
        group_keys: of the groups that there are.
        offset: only the run with this entry; 0 = all, also what is not dispatched yet.
    """
    open_offsets = {entry.offset for entry in unsettled(session)} | {offset}
    kept: list[list[InboxEntry]] = []
    for run in session.group_runs:
        if offset and not run[0].offset <= offset <= run[-1].offset:
            kept.append(run)
            continue
        left = [entry for entry in run if entry.offset in open_offsets]
        kept.extend([entry] for entry in left if offset and entry.offset != offset)
        _put_one_by_one(batch, run, left, group_keys)
    if offset:
        session.group_runs = kept
    else:
        for run in session.given.values():
            _put_one_by_one(batch, run, run, group_keys)


def _put_one_by_one(
    batch: Batch, run: list[InboxEntry], left: list[InboxEntry], group_keys: Container[str]
) -> None:
    if run[0].qos != 1 or (len(run) == 1 and left):
        return
    group_key = run[0].group_key
    batch.delete_group_run(group_key, run)
    if group_key in group_keys:
        for entry in left:
            batch.put_group_entry(group_key, entry)
