"""A group of a shared subscription: where it stands in the log, and whom each message goes to.

A group reads the log like a session does: live while a member is connected and takes messages,
lagging otherwise. What it gives to a member becomes an entry of that member's private stream, with
an offset and a serial number of its own, and the group's position moves in the same batch: after a
crash the message is with the member or still with the group, never with both and never lost.

A message goes to a member that may read it and whose packets have room for it. While such a
member is connected and has no room in its window, the group waits for it. A message that no
connected member may have is passed over and counted: it would hold up all that follow.

An ephemeral member's entries are kept by the group until they are settled, because nobody else
would know of them after a crash. Who is a member, and what comes back from those who go, is said
by ``subscriptions``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from perdure.broker.core import RETRY_US
from perdure.broker.dispatch.items import is_plain
from perdure.broker.shared.choosing import NO_TAKER, Choosing
from perdure.broker.shared.giving import Giver
from perdure.broker.shared.member import GroupMember, LocalMember
from perdure.broker.shared.member_shares import MemberShares, stretch_end
from perdure.broker.shared.owned_group import OwnedGroup
from perdure.errors import StorageError
from perdure.limits import STORED_FILTER_CHANGES_MAX
from perdure.model import GroupRecord, InboxEntry, Message
from perdure.topic.shared import NOBODY, Chooser

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.inbox import Inbox
    from perdure.broker.delivery.window_waiters import WindowWaiters
    from perdure.broker.shared.elsewhere import MemberElsewhere, MembersElsewhere

FAILED_US: Final = 10_000_000
"""How long a group waits whose reading has failed as nobody expected."""


@final
class SharedGroup(OwnedGroup):
    """One share name with one filter."""

    def __init__(
        self,
        core: BrokerCore,
        record: GroupRecord,
        chooser: Chooser,
        *,
        inbox: Inbox,
        members_elsewhere: MembersElsewhere | None,
        window_waiters: WindowWaiters,
    ) -> None:
        super().__init__(core, record, members_elsewhere)
        self._window_waiters: WindowWaiters = window_waiters
        self.members: list[LocalMember] = []
        """Members that are connected here."""
        self.takers: list[GroupMember] = []
        """All whom it gives to."""
        self.lagging: bool = True
        self.served: int = 0
        """Messages given out while it was behind (the admission's own mark)."""
        self._choosing = Choosing(core, chooser)
        self._shares = MemberShares(core, inbox, record.key)
        self._giver = Giver(core, inbox, record.key)
        self._catching_up: bool = False
        self._gathered: list[Message] = []
        """Plain messages that fulfil the content filter, behind ``position``."""

    def begin_anew(self) -> None:
        """Another node has ended the group, and members have joined it here meanwhile."""
        self.record = msgspec.structs.replace(self.record, turn=0, node="", incarnation=0)
        self.serve()
        self._core.pipeline.schedule()
        self.start()

    def deliver(self, message: Message) -> None:
        """A message was dispatched now."""
        if self._core.peers is not None and not self.is_served:
            return
        if self._gathered:
            self.hand_out()
        if not message.qos or not message.offset:
            self._give_unrecorded(message)
            return
        if self.lagging:
            return
        if self.where and not self.wants(message):
            self.position = message.offset
            self._core.cursors.group_moved(self)
            return
        index = self._choosing.choose(self.takers, message)
        if index == NOBODY:
            self.fall_behind(message.offset - 1)
            return
        self.position = message.offset
        if index == NO_TAKER:
            self._core.cursors.group_moved(self)
            self._choosing.pass_over(self.takers, message)
        else:
            self._give(self.takers[index], message)

    def deliver_run(self, run: list[Message]) -> None:
        """Messages were dispatched now; see ``GroupSubscriber``."""
        self.hand_out()
        if not self.lagging and self.is_served:
            self._gathered = run
            self.hand_out()

    def gather(self, message: Message) -> bool:
        """A plain message was dispatched now, and may wait; see ``GroupSubscriber``."""
        if self.lagging or not self.is_served:
            return False
        gathered = self._gathered
        if self.where and not self.wants(message):
            if not gathered:
                self.position = message.offset
                self._core.cursors.group_moved(self)
            return False
        gathered.append(message)
        return len(gathered) == 1

    def hand_out(self) -> None:
        """Give out what was gathered."""
        gathered, self._gathered = self._gathered, []
        if not gathered:
            return
        try:
            count = self._give_out(gathered, are_wanted=True)
        except Exception as error:  # noqa: BLE001 - it reads the messages again
            self.failed(gathered[0], error)
            return
        if count < len(gathered):
            self.fall_behind(gathered[count].offset - 1)

    def _give_out(self, messages: list[Message], *, are_wanted: bool = False) -> int:
        """Give messages of the log to members, and move the position past them.

        Args:
            messages: in the order of the log.
            are_wanted: the content filter was asked already.

        Returns:
            How many: who may have the next one has no room.
        """
        shares = self._shares
        total = len(messages)
        length, in_stretches = 1, 0
        is_asked = bool(self.where) and not are_wanted
        if not is_asked:  # what a content filter leaves is no stretch
            length, in_stretches = self._choosing.stretches(self.takers, total)
        count = 0
        has_shares = False
        while count < total:
            message = messages[count]
            stop = count + 1
            if message.qos and (not is_asked or self.wants(message)):
                index = self._choosing.choose(self.takers, message)
                if index == NOBODY:
                    break
                self.position = message.offset
                if index == NO_TAKER:
                    self._choosing.pass_over(self.takers, message)
                elif self.takers[index].takes_runs and is_plain(message):
                    member = self.members[index]
                    if count < in_stretches:
                        stop = stretch_end(messages, count, min(length, member.room))
                    shares.add(member, messages, count, stop)
                    has_shares = True
                else:
                    # In a member's private stream they stand in the order of the log.
                    shares.hand_over()
                    self._give(self.takers[index], message)
            count = stop
            self.position = messages[count - 1].offset
        shares.hand_over()
        self._core.cursors.group_moved(self, gives=has_shares)
        return count

    def wants(self, message: Message) -> bool:
        """Whether a message fulfils the group's content filter, as it was when it was published."""
        where = self.where
        if not where:
            return True
        if message.offset:
            for until_offset, earlier in self.record.earlier:
                if message.offset <= until_offset:
                    where = earlier
                    break
        return self._core.router.evaluation.holds(where, message)

    def change_where(self, where: str, offset: int) -> None:
        """The stored content filter is another one for messages after an offset."""
        core = self._core
        in_router = bool(self.members)
        if in_router:
            core.router.remove_group(self)
        earlier = [each for each in self.record.earlier if each[0] > self.position]
        if self.lagging and self.position < offset:
            earlier.append((offset, self.where))
        self.record = msgspec.structs.replace(
            self.record, where=where, earlier=tuple(earlier[-STORED_FILTER_CHANGES_MAX:])
        )
        self.where = where
        if in_router:
            core.router.put_group(self)
        core.cursors.group_moved(self, gives=True)
        core.pipeline.schedule()

    def use(self, members: list[LocalMember]) -> None:
        """Other members are connected here from now on."""
        self.hand_out()
        self.members = members
        self._use_all()

    def use_elsewhere(self, members: dict[str, MemberElsewhere]) -> None:
        """Other members are connected elsewhere from now on, by their client identifiers."""
        came = len(members) > len(self.elsewhere)
        self.elsewhere = members
        self._use_all()
        if came:
            self.joined()

    def _use_all(self) -> None:
        elsewhere = self.elsewhere
        # Those that are here first: their places in one list are those in the other.
        self.takers = [*self.members, *elsewhere.values()]
        # What one elsewhere may have is known when it has come back.
        self._choosing.is_limited = bool(elsewhere) or any(
            each.packet_size_max for each in self.members
        )

    def failed(self, message: Message, error: Exception) -> None:
        """Giving a message to a member failed as nobody expected: read it from the log, later."""
        core = self._core
        self._shares.drop()
        core.unexpected_errors.report(error, "group", group=self.key)
        if not self.lagging and message.offset:
            self.lagging = True
            self.position = (self._gathered or [message])[0].offset - 1
            self._gathered = []
            core.scheduler.call_later(FAILED_US, self.start)

    def fall_behind(self, position: int) -> None:
        """Stop taking dispatched messages; read from the log after ``position`` instead."""
        if not self.lagging:
            self.lagging = True
            self.position = position
            self.start()

    def lag_us(self, fence: int) -> int:
        """How old the next message is that a member is to be given (``Admission``)."""
        return max(0, fence - self.position) if self.lagging else 0

    def took_all(self, served: int) -> bool:
        """Whether so many messages are most of what its members can be sent (``Admission``)."""
        windows = sum([member.window_max for member in self.takers])
        return served * 4 >= windows * 3

    def reload(self, record: GroupRecord) -> None:
        """Go on from what the store has."""
        self.record = record
        self.position = record.position
        self.lagging = True
        self.returned.forget()
        if self._members_elsewhere is not None and not self.is_served:
            self._members_elsewhere.drop(self)
        self.start()

    def joined(self) -> None:
        """A member is ready for messages: read what the group has missed."""
        if self.lagging or self.returned.entries or not self.returned.is_loaded:
            self.start()
            # The group may be waiting for other members to have room.
            for member in self.takers:
                self._window_waiters.notify(member.subscriber)

    def start(self) -> None:
        """Begin to read for the group, unless that goes on already."""
        if not self._catching_up and self.members and self.serve():
            self._catching_up = True
            self._core.scheduler.spawn(self._run(), name="group")

    def give_back(self, entry: InboxEntry) -> None:
        """An entry is put back, in the open batch. Where there are other nodes that may be refused,
        and who serves the group hears of it from the log (``came_back``)."""
        if self._core.peers is None:
            self.came_back(entry)

    def came_back(self, entry: InboxEntry) -> None:
        """An entry has come back (and is in the group's private stream)."""
        if not self.is_served:
            return
        self.returned.add(entry)
        self.start()

    def _give_unrecorded(self, message: Message) -> None:
        """QoS 0, or not recorded: to whoever is there, with no promise."""
        if self.where and not self.wants(message):
            return
        index = self._choosing.choose(self.takers, message)
        if index == NOBODY:
            self._core.metrics.messages_dropped_queue_full += 1
            return
        if index == NO_TAKER:
            self._choosing.pass_over(self.takers, message)
            return
        self._giver.give_unrecorded(self.takers[index], message)

    def _give(self, member: GroupMember, message: Message) -> None:
        """Give a recorded message to a member; the position has moved past it."""
        lasts = member.sub.qos > 0 and message.qos > 0
        self._core.cursors.group_moved(self, gives=lasts)
        self._giver.give(member, message)

    async def _run(self) -> None:
        core = self._core
        try:
            while (
                self.members
                and self.is_served
                and (self.lagging or self.returned.entries or not self.returned.is_loaded)
            ):
                if not self.returned.is_loaded:
                    await self.returned.load(lambda: self.members)
                    continue
                if not any(member.is_available for member in self.takers):
                    await self._window_waiters.wait_any([m.subscriber for m in self.takers])
                    continue
                core.pipeline.now_us = core.clock.now_us()
                if self.returned.entries:
                    moved = self._give_returned()
                else:
                    moved = await self._page()
                if not moved:
                    # The members that may have the next message have no room; others have.
                    full = [m.subscriber for m in self.takers if not m.is_available]
                    await self._window_waiters.wait_any(full)
        except StorageError as error:
            core.read_failed(error, group=self.key)
            core.scheduler.call_later(RETRY_US, self.start)
        except Exception as error:  # noqa: BLE001 - it costs the group some time
            core.unexpected_errors.report(error, "group", group=self.key)
            core.scheduler.call_later(FAILED_US, self.start)
        finally:
            self._catching_up = False

    def _give_returned(self) -> bool:
        """Give out what has come back; False if who may have the next one has no room."""
        core = self._core
        returned = self.returned.entries
        while returned:
            entry = returned[0]
            message = entry.message
            assert message is not None
            index = self._choosing.choose(self.takers, message)
            if index == NOBODY:
                return False
            returned.popleft()
            core.committer.batch.delete_group_entry(self.key, entry)
            if index == NO_TAKER:
                self._choosing.pass_over(self.takers, message)
            else:
                self._give(self.takers[index], message)
        return True

    async def _page(self) -> bool:
        """Give out what the log has; False if who may have the next one has no room."""
        core = self._core
        fence = core.dispatcher.offset
        after = self.position
        through = fence
        messages: list[Message] = []
        if after < fence:
            begun_us = core.clock.monotonic_us()
            page = await core.database.read(
                [self.filter],
                after_offset=after,
                until_offset=fence,
                limit=core.session_config.feed_chunk,
                bytes_max=core.session_config.outbound_buffer_bytes,
            )
            elapsed_us = core.clock.monotonic_us() - begun_us
            core.metrics.storage_read_seconds.observe(elapsed_us)
            messages = page.messages
            through = page.through_offset
        if not self.lagging or self.position != after:
            return True
        count = self._give_out(messages)
        is_through = count == len(messages)
        if is_through:
            self.position = through
        if count:
            core.pipeline.admission.served(self, count)
            core.pipeline.replayed(messages)
        if self.position >= core.dispatcher.offset:
            self.lagging = False
        core.pipeline.schedule()
        return is_through
