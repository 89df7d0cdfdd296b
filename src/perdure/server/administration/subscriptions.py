"""Operations on subscriptions and shared groups."""

from __future__ import annotations

import functools
import heapq
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, final

import msgspec

from perdure.admin.operation import Request
from perdure.admin.problems import Refused
from perdure.admin.records.sessions import ListSessions
from perdure.admin.records.subscriptions import (
    ListSharedGroups,
    ListSubscriptions,
    Match,
    MatchPage,
    MatchTopic,
    SessionSubscriptions,
    SharedGroupPage,
    SharedGroupRow,
    SubscriptionPage,
    SubscriptionRow,
)
from perdure.broker.auth.authorize import Identity
from perdure.broker.delivery.live_session import LiveSession
from perdure.broker.services import Services
from perdure.broker.shared.group import SharedGroup
from perdure.config.units import format_time
from perdure.model import SessionRecord, Subscription
from perdure.server.administration.listing import (
    LiveTable,
    candidates,
    decode_cursor,
    encode_cursor,
)
from perdure.server.administration.paging import page_of
from perdure.server.administration.service import Call, Handler
from perdure.server.inspect import held_subscription
from perdure.server.rules import Rules
from perdure.server.stepwise import StepwiseRows
from perdure.server.turns import Turns
from perdure.session.pending_pages import count_recorded
from perdure.storage.subscribers import Subscriber, SubscriberPage
from perdure.topic.names import validate_topic_name

SESSIONS_PER_PAGE: Final = 2_000
"""Sessions whose subscriptions are read for one page."""

MEMBERS_SHOWN_MAX: Final = 100
LAG_COUNT_MAX: Final = 1_000
"""Messages counted for one group; beyond it is "at least"."""

INDEX_STEPS_MAX: Final = 128
"""Entries of the index of subscriptions that are looked at in one go, 0.1 to 0.5 ms."""

INDEX_READS_MAX: Final = 512
"""How often that may be for one page."""

GATHERED_MAX: Final = 2_048
"""Matches that are put in order in one turn, some 0.5 ms."""

_STORED: Final = "\0"
"""Begins the cursor of a match among what is stored."""


@final
class SubscriptionOperations:
    """Answers what is asked of subscriptions.

    Args:
        services: the parts of the broker.
        live: connected sessions.
        is_superuser: whether a user is exempt from the ACL.
    """

    def __init__(
        self,
        services: Services,
        live: LiveTable,
        *,
        is_superuser: Callable[[str | None], bool] = lambda _: False,
    ) -> None:
        self._services = services
        self._live = live
        self._is_superuser = is_superuser

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        """By request."""
        return {
            ListSubscriptions: self.list_page,
            SessionSubscriptions: self.of_session,
            MatchTopic: self.match,
            ListSharedGroups: self.groups,
        }

    async def of_session(self, request: SessionSubscriptions, call: Call) -> SubscriptionPage:
        """Those of one session."""
        asked = ListSubscriptions(
            client_id=request.client_id, limit=request.limit, cursor=request.cursor
        )
        return await self.list_page(asked, call)

    async def list_page(self, request: ListSubscriptions, call: Call) -> SubscriptionPage:
        """A page of all that hold; if their names must have a text in them, of connected sessions
        first, and then by the index of the store."""
        text = request.filter_like or (f"$share/{request.group}/" if request.group else "")
        if not text or request.client_id or request.prefix or not self._live.is_alone:
            return await self._by_client(request)
        after = decode_cursor(request.cursor)
        items: list[SubscriptionRow] = []
        if not after.startswith(_STORED) and request.connected is not False:
            asked = msgspec.structs.replace(request, connected=True)
            page = await self._by_client(asked)
            if page.next_cursor is not None or request.connected:
                return page
            items = list(page.items)
            if len(items) == request.limit:
                return SubscriptionPage(items=items, next_cursor=encode_cursor(_STORED))
        look = _Look(functools.partial(self._services.database.subscribers_like, text), after)
        async for client_id, name in self._stored(look, request.limit, items):
            subs, node, _ = await self._held(client_id)
            items += [
                self._row(client_id, sub, node)
                for sub in subs
                if sub.name == name and _wanted(sub, request, connected=node is not None)
            ]
        return SubscriptionPage(items=items, next_cursor=look.cursor)

    async def _by_client(self, request: ListSubscriptions) -> SubscriptionPage:
        """A page in the order of client ids."""
        items: list[SubscriptionRow] = []
        after_id, _, after_name = decode_cursor(request.cursor).partition("\0")
        last = after_id, after_name
        looked, turns = 0, Turns()
        async for client_id in self._clients(request, after_id, resumed=bool(after_name)):
            if looked == SESSIONS_PER_PAGE:
                break
            # The one in which the page before has ended does not count: each page goes on.
            looked += client_id != after_id
            subs, node, _ = await self._held(client_id)
            for sub in subs:
                if client_id == after_id and sub.name <= after_name:
                    continue
                if len(items) == request.limit:
                    return SubscriptionPage(items=items, next_cursor=_position(*last))
                if _wanted(sub, request, connected=node is not None):
                    items.append(self._row(client_id, sub, node))
                last = client_id, sub.name
            last = client_id, ""
            await turns.step()
        else:
            return SubscriptionPage(items=items, estimated_total=self._total(request))
        return SubscriptionPage(items=items, next_cursor=_position(*last))

    async def match(self, request: MatchTopic, _call: Call) -> MatchPage:
        """Connected subscribers by the matcher that delivers; then the others by the index of the
        store."""
        validate_topic_name(request.topic, levels_max=65_536)
        after = decode_cursor(request.cursor)
        items: list[Match] = []
        if not after.startswith(_STORED):
            if request.connected is not False:
                found = await self._matching(request.topic, after, request.limit + 1)
                for _, live, sub in found[: request.limit]:
                    row = msgspec.structs.asdict(self._row(live.client_id, sub, self._live.node))
                    items.append(Match(**row, allowed=self._allowed(live, request.topic)))
                if len(found) > request.limit:
                    place = found[request.limit - 1][0]
                    return MatchPage(items=items, next_cursor=encode_cursor(place))
            if request.connected and self._live.is_alone:
                return MatchPage(items=items)
            if len(items) == request.limit:
                return MatchPage(items=items, next_cursor=encode_cursor(_STORED))
        look = _Look(functools.partial(self._services.database.subscribers, request.topic), after)
        async for client_id, name in self._stored(look, request.limit, items):
            subs, node, record = await self._held(client_id)
            for sub in subs:
                if sub.name == name and request.connected in (None, node is not None):
                    row = msgspec.structs.asdict(self._row(client_id, sub, node))
                    items.append(Match(**row, allowed=self._allowed_later(record, request.topic)))
        return MatchPage(items=items, next_cursor=look.cursor)

    def _row(self, client_id: str, sub: Subscription, node: str | None) -> SubscriptionRow:
        # The seam costs a look at all generations, which most rows can do without.
        seam = self._services.seam() if sub.backfill is not None else 0
        return SubscriptionRow(
            client_id=client_id,
            connected=node is not None,
            node=node,
            group=sub.group or None,
            **msgspec.structs.asdict(held_subscription(sub, seam=seam)),
        )

    async def _stored(
        self, look: _Look, limit: int, items: Sequence[SubscriptionRow]
    ) -> AsyncIterator[Subscriber]:
        """Go on with what is stored, of sessions that are not connected here, until there are so
        many items, or the work of a page is done."""
        turns = Turns()
        for _ in range(INDEX_READS_MAX):
            page = await look.read(
                start=look.start, limit=limit - len(items), steps_max=INDEX_STEPS_MAX
            )
            for found in page.found:
                if self._live.get(found.client_id) is None:
                    yield found
                await turns.step()
            look.goes_on_at(page.next_start)
            if page.next_start is None or len(items) >= limit:
                return
            await turns.step()

    async def groups(self, request: ListSharedGroups, _call: Call) -> SharedGroupPage:
        """A page of groups."""
        groups = self._services.shared_subscriptions.groups
        keys, following = page_of(sorted(groups), request, str)
        items, turns = [], Turns()
        for key in keys:
            group = groups.get(key)
            if group is not None:
                items.append(await self._group_row(group))
            await turns.step()
        return SharedGroupPage(items=items, next_cursor=following, estimated_total=len(groups))

    def _total(self, request: ListSubscriptions) -> int | None:
        if request != ListSubscriptions(limit=request.limit, cursor=request.cursor):
            return None
        metrics = self._services.metrics
        return metrics.subscriptions + metrics.subscriptions_offline

    async def _clients(
        self, request: ListSubscriptions, after_id: str, *, resumed: bool
    ) -> AsyncIterator[str]:
        """Client ids in order, the one in which the page before has ended included."""
        if request.client_id:
            yield request.client_id
            return
        if resumed:
            yield after_id
        asked = ListSessions(prefix=request.prefix, connected=request.connected)
        async for record in candidates(self._services.database, asked, after_id, self._live):
            yield record.client_id

    async def _held(
        self, client_id: str
    ) -> tuple[list[Subscription], str | None, SessionRecord | None]:
        """The subscriptions of a session that hold, by name, the node that it is connected to, and
        its record. A row of each would cost more than to look whether anybody wants it."""
        live = self._services.registry.live.get(client_id)
        subs: Sequence[Subscription]
        record: SessionRecord | None
        node: str | None = self._live.node
        if live is not None:
            subs, record = list(live.subs.values()), live.record
        else:
            stored = await self._services.database.open_session(client_id)
            subs = () if stored is None else stored.subscriptions
            record = None if stored is None else stored.record
            # Where it is connected to another node its record says so.
            node = record.node or None if record is not None and record.connected else None
        holding = [sub for sub in subs if not sub.until_offset]
        return sorted(holding, key=lambda sub: sub.name), node, record

    async def _matching(
        self, topic: str, after: str, limit: int
    ) -> list[tuple[str, LiveSession, Subscription]]:
        """The first subscriptions of connected sessions that a topic matches, behind a place."""
        found: list[tuple[str, LiveSession, Subscription]] = []
        turns = Turns()
        for live, sub in self._subscribers(topic):
            place = f"{live.client_id}\1{sub.name}"
            if place > after:
                found.append((place, live, sub))
                if len(found) >= limit + GATHERED_MAX:
                    found = heapq.nsmallest(limit, found, key=itemgetter(0))
            await turns.step()
        return heapq.nsmallest(limit, found, key=itemgetter(0))

    def _subscribers(self, topic: str) -> Iterator[tuple[LiveSession, Subscription]]:
        registry = self._services.registry.live
        groups = self._services.shared_subscriptions.groups
        for subscribers in self._services.router.match(topic):
            entries = list(subscribers.sessions.values())
            for filtered in subscribers.filtered.values():
                entries += filtered.entries.values()
            for entry in entries:
                live = registry.get(entry.session.client_id)
                if live is not None:
                    yield live, entry.sub
            for key in list(subscribers.groups):
                group = groups.get(key)
                for member in () if group is None else list(group.members):
                    yield member.session, member.sub

    def _allowed(self, live: LiveSession, topic: str) -> bool:
        known = live.identity
        # A copy: decisions are remembered in the identity of a connection.
        identity = Identity(live.client_id, known.username, known.superuser, grant=known.grant)
        return self._services.authorizer.deliver(identity, topic, "")

    def _allowed_later(self, record: SessionRecord | None, topic: str) -> bool | None:
        """Of a client that is not connected here: what holds whatever its next login grants."""
        services = self._services
        if record is None:
            return None
        if not Rules(services, record, self._is_superuser).may_get(topic, ""):
            return False
        return True if services.standing.grant_without_login(record.method) is None else None

    async def _group_row(self, group: SharedGroup) -> SharedGroupRow:
        database = self._services.database
        durable = await database.group_members(group.key)
        lag = await count_recorded(
            StepwiseRows(database),
            [group.filter],
            after=group.position,
            until=database.last_offset,
            limit=LAG_COUNT_MAX,
        )
        members = sorted(member.client_id for member in group.members)
        record = group.record
        return SharedGroupRow(
            group=record.group,
            filter=record.filter,
            where=group.where or None,
            members=members[:MEMBERS_SHOWN_MAX],
            members_connected=len(members),
            members_durable=len(durable),
            position=group.position,
            position_at=format_time(group.position),
            lagging=group.lagging,
            returned=len(group.returned.entries),
            lag_messages=lag,
            lag_is_exact=lag < LAG_COUNT_MAX,
            created_at=format_time(record.created_at_us),
            created_at_us=record.created_at_us,
        )


def _wanted(sub: Subscription, request: ListSubscriptions, *, connected: bool) -> bool:
    return (
        request.filter_like in sub.name
        and (request.connected is None or request.connected == connected)
        and (request.group is None or request.group == sub.group)
        and (request.qos is None or request.qos == sub.qos)
    )


@final
class _Look:
    """A look at the index of the store.

    Args:
        read: reads a page of it.
        cursor: says where to begin, if it is of a page of it.

    Attributes:
        start: where to go on.
        cursor: of that; None = everything was seen.

    Raises:
        Refused: the cursor says nothing of the kind.
    """

    __slots__ = ("cursor", "read", "start")

    def __init__(self, read: Callable[..., Awaitable[SubscriberPage]], cursor: str) -> None:
        self.read = read
        self.cursor: str | None = None
        try:
            self.start = cursor[1:].encode("latin-1") if cursor.startswith(_STORED) else b""
        except ValueError as error:
            raise Refused("bad_request", "the cursor is not one of this list") from error

    def goes_on_at(self, start: bytes | None) -> None:
        """The next page begins there."""
        self.start = start or b""
        self.cursor = None if start is None else encode_cursor(_STORED + start.decode("latin-1"))


def _position(client_id: str, name: str) -> str:
    return encode_cursor(f"{client_id}\0{name}")
