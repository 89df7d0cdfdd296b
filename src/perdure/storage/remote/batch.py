"""A batch: the calls, kept in their order until it is written.

Nothing is decided here but who may write: the calls become rows and queue entries in ``writer``
when the batch is handed over, so a batch that is never written leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from perdure.errors import UsageError
from perdure.model import Cursor, GroupRecord, InboxEntry, Message, SessionRecord, Subscription
from perdure.storage.fencing import Fences
from perdure.storage.remote.writer import Writer


@final
class RemoteBatch:
    """Writes that are applied together; see ``storage.contract.Batch``.

    Args:
        owner_epoch: epoch of a stored session; None = there is no such session.
        allocate_offset: gives a message its offset.

    Attributes:
        fences: who may write, asked again at the write.
        calls: methods of the writer and their arguments, in their order.
    """

    __slots__ = ("_allocate_offset", "calls", "fences")

    def __init__(
        self,
        owner_epoch: Callable[[str], int | None],
        allocate_offset: Callable[[int], int],
    ) -> None:
        self._allocate_offset = allocate_offset
        self.fences = Fences(owner_epoch)
        self.calls: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def append(self, message: Message, now_us: int) -> int:
        message.offset = self._allocate_offset(now_us)
        self.calls.append((Writer.append, (message,)))
        return message.offset

    def extend(self, messages: list[Message], now_us: int) -> None:
        for message in messages:
            self.append(message, now_us)

    # -- sessions --------------------------------------------------------------------------

    def put_session(self, record: SessionRecord) -> None:
        self.fences.put_record(record.client_id, record.epoch)
        self.calls.append((Writer.put_session, (record,)))

    def discard_session(self, client_id: str) -> None:
        self.fences.discard(client_id)
        self.calls.append((Writer.discard_session, (client_id,)))

    def put_cursor(self, client_id: str, cursor: Cursor, *, epoch: int) -> None:
        self.fences.check(client_id, epoch)
        self.calls.append((Writer.put_cursor, (client_id, cursor)))

    def put_subscription(self, client_id: str, sub: Subscription, *, epoch: int) -> None:
        self.fences.check(client_id, epoch)
        self.calls.append((Writer.put_subscription, (client_id, sub)))

    def delete_subscription(self, client_id: str, sub: Subscription, *, epoch: int) -> None:
        self.fences.check(client_id, epoch)
        self.calls.append((Writer.delete_subscription, (client_id, sub)))

    def put_awaiting_release(self, client_id: str, packet_id: int, *, epoch: int) -> None:
        self.fences.check(client_id, epoch)
        self.calls.append((Writer.put_awaiting_release, (client_id, packet_id)))

    def delete_awaiting_release(self, client_id: str, packet_id: int, *, epoch: int) -> None:
        self.fences.check(client_id, epoch)
        self.calls.append((Writer.delete_awaiting_release, (client_id, packet_id)))

    def put_inbox(self, client_id: str, entry: InboxEntry, *, epoch: int) -> None:
        self.fences.check(client_id, epoch)
        self.calls.append((Writer.put_inbox, (client_id, entry)))

    def trim_inbox(self, client_id: str, through_offset: int, *, epoch: int) -> None:
        self.fences.check(client_id, epoch)
        self.calls.append((Writer.trim_inbox, (client_id, through_offset)))

    # -- groups and retained ---------------------------------------------------------------

    def put_group(self, record: GroupRecord) -> None:
        self.calls.append((Writer.put_group, (record,)))

    def discard_group(self, group_key: str) -> None:
        self.calls.append((Writer.discard_group, (group_key,)))

    def put_group_member(self, group_key: str, client_id: str) -> None:
        self.calls.append((Writer.put_group_member, (group_key, client_id)))

    def delete_group_member(self, group_key: str, client_id: str) -> None:
        self.calls.append((Writer.delete_group_member, (group_key, client_id)))

    def put_group_entry(self, group_key: str, entry: InboxEntry) -> None:
        self.calls.append((Writer.put_group_entry, (group_key, entry)))

    def delete_group_entry(self, group_key: str, offset: int) -> None:
        self.calls.append((Writer.delete_group_entry, (group_key, offset)))

    def put_retained(self, message: Message) -> None:
        if not message.offset:
            raise UsageError("a retained message needs an offset")
        self.calls.append((Writer.put_retained, (message,)))

    def delete_retained(self, topic: str) -> None:
        self.calls.append((Writer.delete_retained, (topic,)))

    # -- the write -------------------------------------------------------------------------

    def names_session(self, client_id: str) -> bool:
        return self.fences.names(client_id)

    def is_empty(self) -> bool:
        return not self.calls
