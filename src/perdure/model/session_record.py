"""What the store keeps of a session: its record, its cursor, its inbox entries."""

from __future__ import annotations

import msgspec

from perdure.model.cursor import Cursor
from perdure.model.subscription import Subscription, group_key_of


class Will(msgspec.Struct, frozen=True, array_like=True):
    """The Will Message of a session.

    Attributes:
        topic, payload, qos, retain: as in CONNECT.
        properties: forwardable properties in wire form (see ``Message.properties``).
        delay_s: Will Delay Interval, seconds.
        expiry_s: Message Expiry Interval, seconds; None = none.
    """

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: bytes = b""
    delay_s: int = 0
    expiry_s: int | None = None


class SessionRecord(msgspec.Struct, frozen=True, array_like=True):
    """The durable record of a session.

    Attributes:
        client_id: the client's identifier.
        epoch: fencing number of the owner; grows at each resume and takeover.
        created_at_us: wall time of creation.
        expiry_s: Session Expiry Interval, seconds; 0xFFFFFFFF = never, 0 = ends with the
            connection.
        connected: a connection held it when this was written. After a crash it means: the
            connection was cut at some moment before the start.
        changed_at_us: wall time of the last connect or disconnect.
        will: the will not yet published, or None.
        will_at_us: when the will is due (disconnected sessions); 0 = no will pending.
        expires_at_us: steady time at which the session ends; 0 = connected or never.
        username: user to whom the session belongs, empty = anonymous.
        protocol: 4 (3.1.1) or 5 (5.0) of the last connection; 0 = none since a backup was restored:
            what the client remembers of packet identifiers may be of later than that, so the next
            CONNACK says Session Present 0, which makes it forget.
        dropped_count: messages dropped by a limit since creation.
        cut_offset: the broker died while a connection held the session: messages up to this
            offset may have been sent although the cursor does not say so; 0 = it did not.
        method: what proved the user name (``password``, ``certificate``, ``SCRAM-SHA-256``), or
            ``anonymous``; empty = nobody knows (a session from another broker), and it belongs to
            whoever comes first.
        subscription_count: subscriptions that hold, those that have ended left out.
        node, incarnation: of the cluster, that held it last; empty and 0 = there is no cluster.
        window: messages that its client takes before it acknowledges one, for the nodes that give
            to it; 0 = there is no cluster.
        packet_bytes_max: its client's Maximum Packet Size; 0 = it has none, or as ``window``.
        taken_over: no connection holds it, for its client has come back over another one to the
            same node of a cluster, which claims it next: it keeps what groups have given it.
    """

    client_id: str
    epoch: int
    created_at_us: int
    expiry_s: int
    connected: bool
    changed_at_us: int
    will: Will | None = None
    will_at_us: int = 0
    expires_at_us: int = 0
    username: str = ""
    protocol: int = 4
    dropped_count: int = 0
    cut_offset: int = 0
    method: str = ""
    subscription_count: int = 0
    node: str = ""
    incarnation: int = 0
    window: int = 0
    packet_bytes_max: int = 0
    taken_over: bool = False

    @property
    def deadline_us(self) -> int:
        """Next moment at which the reaper must look at the session; 0 = none."""
        will_at_us, expires_at_us = self.will_at_us, self.expires_at_us
        if will_at_us and expires_at_us:
            return min(will_at_us, expires_at_us)
        return will_at_us or expires_at_us


class GroupRecord(msgspec.Struct, frozen=True, array_like=True):
    """A shared group: one durable cursor for all its members.

    Attributes:
        group: share name.
        filter: topic filter.
        position: every matching message up to this offset has been given to a member.
        created_at_us: wall time of creation.
        where, where_id: its content filter, as in ``Subscription``.
        earlier: what that was before, with the last offset for which it was, where ``position``
            has not passed it.
        turn: another one each time that it is written, by whichever node, so that of two writers
            that have read the same one is refused; 0 = there is no cluster.
        node, incarnation: of the cluster, that gives its messages out; empty and 0 = nobody does.
    """

    group: str
    filter: str
    position: int
    created_at_us: int
    where: str = ""
    where_id: str = ""
    earlier: tuple[tuple[int, str], ...] = ()
    turn: int = 0
    node: str = ""
    incarnation: int = 0

    @property
    def key(self) -> str:
        """See ``group_key_of``."""
        return group_key_of(self.group, self.filter, self.where, self.where_id)


class StoredSession(msgspec.Struct, frozen=True):
    """All that the store holds of one session, read in one call.

    Attributes:
        record: the record.
        cursor: the outbound cursor.
        subscriptions: current and ended ones, in the order in which they were made.
        awaiting_release: inbound QoS 2 packet identifiers between PUBREC and PUBREL.
    """

    record: SessionRecord
    cursor: Cursor
    subscriptions: tuple[Subscription, ...]
    awaiting_release: tuple[int, ...]
