"""A batch of the reference backend: operations on its state, kept until it is written.

Nothing is decided here but who may write.

Invariant: a batch that is never written leaves no trace but the offsets that it took.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar, final

from perdure.errors import UsageError
from perdure.model import Cursor, GroupRecord, InboxEntry, Message, SessionRecord, Subscription
from perdure.storage.fencing import Fences
from perdure.storage.memory.state import State

Operation: TypeAlias = Callable[[State], None]

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@final
class MemoryBatch:
    """Operations that are applied together; see ``storage.contract.Batch``.

    Args:
        owner_epoch: epoch of a stored session; None = there is no such session.
        allocate_offset: gives a message its offset.

    Attributes:
        fences: who may write, asked again at the write.
        operations: what the calls do, in their order.
    """

    __slots__ = ("_allocate_offset", "fences", "operations")

    def __init__(
        self,
        owner_epoch: Callable[[str], int | None],
        allocate_offset: Callable[[int], int],
    ) -> None:
        self._allocate_offset = allocate_offset
        self.fences = Fences(owner_epoch)
        self.operations: list[Operation] = []

    def append(self, message: Message, now_us: int) -> int:
        message.offset = self._allocate_offset(now_us)
        self.operations.append(lambda state: state.append(message))
        return message.offset

    def extend(self, messages: list[Message], now_us: int) -> None:
        for message in messages:
            self.append(message, now_us)

    def put_session(self, record: SessionRecord) -> None:
        self.fences.put_record(record.client_id, record.epoch)
        self.operations.append(lambda state: state.put_session(record))

    def discard_session(self, client_id: str) -> None:
        self.fences.discard(client_id)
        self.operations.append(lambda state: state.discard_session(client_id))

    def put_cursor(self, client_id: str, cursor: Cursor, *, epoch: int) -> None:
        self.fences.check(client_id, epoch)

        def apply(state: State) -> None:
            state.sessions[client_id].cursor = cursor

        self.operations.append(apply)

    def put_subscription(self, client_id: str, sub: Subscription, *, epoch: int) -> None:
        self.fences.check(client_id, epoch)

        def apply(state: State) -> None:
            state.sessions[client_id].subscriptions[sub.since_offset, sub.name] = sub

        self.operations.append(apply)

    def delete_subscription(self, client_id: str, sub: Subscription, *, epoch: int) -> None:
        self.fences.check(client_id, epoch)
        key = (sub.since_offset, sub.name)
        self.operations.append(
            lambda state: _forget(state.sessions[client_id].subscriptions, key),
        )

    def put_awaiting_release(self, client_id: str, packet_id: int, *, epoch: int) -> None:
        self.fences.check(client_id, epoch)
        self.operations.append(
            lambda state: state.sessions[client_id].awaiting_release.add(packet_id),
        )

    def delete_awaiting_release(self, client_id: str, packet_id: int, *, epoch: int) -> None:
        self.fences.check(client_id, epoch)
        self.operations.append(
            lambda state: state.sessions[client_id].awaiting_release.discard(packet_id),
        )

    def put_inbox(self, client_id: str, entry: InboxEntry, *, epoch: int) -> None:
        self.fences.check(client_id, epoch)

        def apply(state: State) -> None:
            state.inboxes.setdefault(client_id, {})[entry.offset] = entry

        self.operations.append(apply)

    def trim_inbox(self, client_id: str, through_offset: int, *, epoch: int) -> None:
        self.fences.check(client_id, epoch)
        self.operations.append(lambda state: state.trim_inbox(client_id, through_offset))

    def put_group(self, record: GroupRecord) -> None:
        def apply(state: State) -> None:
            state.group(record.key).record = record

        self.operations.append(apply)

    def discard_group(self, group_key: str) -> None:
        self.operations.append(lambda state: _forget(state.groups, group_key))

    def put_group_member(self, group_key: str, client_id: str) -> None:
        self.operations.append(lambda state: state.group(group_key).members.add(client_id))

    def delete_group_member(self, group_key: str, client_id: str) -> None:
        self.operations.append(lambda state: state.group(group_key).members.discard(client_id))

    def put_group_entry(self, group_key: str, entry: InboxEntry) -> None:
        def apply(state: State) -> None:
            state.group(group_key).entries[entry.offset] = entry

        self.operations.append(apply)

    def delete_group_entry(self, group_key: str, offset: int) -> None:
        self.operations.append(lambda state: _forget(state.group(group_key).entries, offset))

    def put_retained(self, message: Message) -> None:
        if not message.offset:
            raise UsageError("a retained message needs an offset")

        self.operations.append(lambda state: state.put_retained(message))

    def delete_retained(self, topic: str) -> None:
        self.operations.append(lambda state: state.delete_retained(topic))

    def names_session(self, client_id: str) -> bool:
        return self.fences.names(client_id)

    def is_empty(self) -> bool:
        return not self.operations


def _forget(mapping: dict[_Key, _Value], key: _Key) -> None:
    mapping.pop(key, None)
