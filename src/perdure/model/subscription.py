"""A session's subscription, and how far its backfill has come."""

from __future__ import annotations

from hashlib import blake2b

import msgspec


class BackfillProgress(msgspec.Struct, frozen=True, array_like=True):
    """What a subscription still has to be given before it joins the live flow.

    A new subscription passes through two stages: retained messages, then the recorded messages
    after ``after_offset`` (its replay, or what was published while the retained ones were read).
    The stage is durable, so a backfill goes on after a crash where its last commit left it.

    Attributes:
        retained: the retained stage is not done yet.
        retained_after: last retained topic that was given; empty = none yet.
        retained_until: the last offset at the time of the SUBSCRIBE: newer retained messages come
            otherwise.
        after_offset: recorded messages up to here are done or not wanted.
    """

    retained: bool
    retained_after: str
    retained_until: int
    after_offset: int


class Subscription(msgspec.Struct, frozen=True, array_like=True):
    """A topic filter with its options, as one session holds it.

    Attributes:
        filter: topic filter without any ``$share/{group}/`` prefix.
        group: share name, empty for an ordinary subscription.
        qos: maximum QoS granted.
        no_local: do not send this client's own messages.
        retain_as_published: keep the RETAIN flag.
        retain_handling: 0, 1 or 2.
        identifier: subscription identifier, 0 = none.
        since_offset: holds for messages with a greater offset.
        until_offset: holds for messages up to this offset; 0 = still held. An ended
            subscription is kept until the session's cursor has passed it, so that the
            session's enumeration never changes (DESIGN, serial numbers).
        backfill: None once the subscription is live.
        where: content filter that a message has to fulfil (``perdure.content``), canonical;
            empty = none.
        where_id: the stored content filter that it comes from, by ``$filter/{id}/``; empty = it
            came with the SUBSCRIBE.
    """

    filter: str
    group: str = ""
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0
    identifier: int = 0
    since_offset: int = 0
    until_offset: int = 0
    backfill: BackfillProgress | None = None
    where: str = ""
    where_id: str = ""

    @property
    def name(self) -> str:
        """The filter as the client wrote it, ``$share/`` and ``$filter/`` prefixes included."""
        name = f"$filter/{self.where_id}/{self.filter}" if self.where_id else self.filter
        return f"$share/{self.group}/{name}" if self.group else name

    @property
    def size(self) -> int:
        """Bytes of what it is called: of its topic filter, group and content filter."""
        names = (self.filter, self.group, self.where_id, self.where)
        return sum([len(each.encode()) for each in names if each])

    @property
    def group_key(self) -> str:
        """Key of the shared group: see ``group_key_of``."""
        return group_key_of(self.group, self.filter, self.where, self.where_id)


def filter_of(name: str) -> str:
    """The topic filter in what a subscription is called: ``Subscription.name`` the other way
    round."""
    for prefix in ("$share/", "$filter/"):
        if name.startswith(prefix):
            name = name.split("/", 2)[-1]
    return name


def group_key_of(group: str, topic_filter: str, where: str, where_id: str) -> str:
    """The key of a shared group.

    Its content filter is part of what a group is, as its topic filter is: a group has one position
    in the log, which means one thing only if all members want the same.

    Args:
        group: share name.
        topic_filter: topic filter.
        where: content filter; empty = none.
        where_id: the stored one that it is; empty = it came with the SUBSCRIBE.

    Returns:
        ``group/filter``, ``group/$filter/{id}/filter``, or ``group/$filter/={hash}/filter`` (no
        id begins with ``=``).
    """
    if not where:
        return f"{group}/{topic_filter}"
    told = where_id or "=" + blake2b(where.encode(), digest_size=16).hexdigest()
    return f"{group}/$filter/{told}/{topic_filter}"
