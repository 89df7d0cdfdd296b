"""An administration service that knows one client, for both ends of the admin socket."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.admin.audit import AuditRecord
from perdure.admin.problems import Refused
from perdure.admin.records.access import (
    AclChange,
    AclPage,
    AclRule,
    AclText,
    GetAclText,
    ListAcl,
    PutAclText,
)
from perdure.admin.records.bans import (
    AddBan,
    Ban,
    BanMade,
    BanPage,
    BanRemoved,
    ListBans,
    RemoveBan,
)
from perdure.admin.records.config import ConfigPage, GetConfig, SettingRow
from perdure.admin.records.explain import ExplainSession, Explanation, Finding
from perdure.admin.records.filters import (
    DeleteFilter,
    Filter,
    FilterDeleted,
    FilterPage,
    FilterStored,
    GetFilter,
    ListFilters,
    PutFilter,
)
from perdure.admin.records.node import GetOverview, GetStats, Overview, Rates, Stats
from perdure.admin.records.sessions import (
    DiscardSession,
    GetSession,
    GiveSession,
    HeldSubscription,
    KickSession,
    ListSessions,
    Outcome,
    SessionDetail,
    SessionPage,
    SessionRow,
)
from perdure.admin.records.storage import (
    Database,
    DatabasePage,
    ListDatabases,
    NewGeneration,
    RotateLog,
)
from perdure.clock import SystemClock
from perdure.config.load import effective, load
from perdure.errors import PerdureError
from perdure.server.administration.service import AdminService
from perdure.topic.proposal import Structure

SESSION: dict[str, Any] = {
    "state": "connected",
    "node": "n",
    "username": None,
    "protocol": "5.0",
    "created_at": None,
    "created_at_us": 0,
    "changed_at": None,
    "changed_at_us": 0,
    "expiry_s": 0,
    "expires_at": None,
    "expires_at_us": None,
    "subscription_count": 1,
    "dropped_count": 0,
    "has_will": False,
    "epoch": 1,
}
DETAIL: dict[str, Any] = {
    "acked_offset": 0,
    "acked_at": None,
    "acked_serial": 0,
    "sent_serial": 0,
    "unacknowledged": 0,
    "oldest_unacknowledged": None,
    "awaiting_release": [],
    "awaiting_completion": 0,
    "owed_messages": 0,
    "owed_is_exact": True,
}
SUBSCRIPTION = HeldSubscription(
    filter="t/#",
    qos=1,
    no_local=False,
    retain_as_published=False,
    retain_handling=0,
    identifier=None,
    where=None,
    since=None,
    since_us=0,
)
TIMES: dict[str, Any] = {"until": None, "until_us": None, "since": None, "since_us": 0}


def stats(storage: str, *, phase: str = "serving") -> Stats:
    """Numbers that are all zero."""
    zero: dict[str, Any] = {
        name: 0
        for name in Stats.__struct_fields__
        if name not in {"messages_dropped_by", "started_at"}
    }
    texts = {"node": "n", "version": "1", "build": "pure", "storage": storage, "phase": phase}
    return Stats(
        **{**zero, **texts, "storage_reason": "", "started_at": None, "messages_dropped_by": {}}
    )


def overview(name: str, **more: Any) -> Overview:
    """Of a node: all zero but for a few numbers, and for what is given."""
    rates = Rates(
        window_s=10.0,
        messages_received=1.5,
        messages_delivered=2.0,
        messages_dropped=0.0,
        bytes_received=10.0,
        bytes_sent=20.0,
        connections_opened=0.1,
    )
    own: dict[str, Any] = {
        "node": name,
        "as_of": None,
        "as_of_us": 1_795_750_525_000_000,
        "rates": rates,
        "open_files": 10,
        "memory_bytes": 100,
        "cpu_s": 1.0,
        "event_loop_lag_us": 5,
    }
    return Overview(**{**msgspec.structs.asdict(stats("ok")), **own, **more})


FILTER: dict[str, Any] = {
    "id": "hot",
    "filter": '{"t":{"$gt":30}}',
    "since": "2026-11-20T08:00:00Z",
    "since_us": 1,
    "state": "settled",
    "revision": "r1",
}


class FakeBroker:
    """Remembers what it was asked, and knows one client.

    Attributes:
        asked: the requests, in order.
        audited: the audit records.
        refusal: raised by the operations that may be refused.
        rows: sessions in the list, beside the known one.
        page: sessions of a page.
        storage, phase: in the numbers.
        rules: the ACL file; empty = there is none.
        structure: that a generation was begun with.
        sets: what its configuration is, besides the defaults.
        changed: value and origin of settings that are otherwise in force.
    """

    def __init__(self, known: str = "live") -> None:
        self.phase = "serving"
        self.asked: list[object] = []
        self.audited: list[AuditRecord] = []
        self.refusal: PerdureError | None = None
        self.rows = 0
        self.page = 2
        self.storage = "ok"
        self.structure: Structure | None = None
        self.sets: tuple[str, ...] = ()
        self.changed: dict[str, tuple[Any, str]] = {}
        self.rules = "# who\ntopic read a/#\n"
        self._known = known
        self.service = AdminService([self], audit=self, clock=SystemClock())

    async def record(self, record: AuditRecord) -> None:
        self.audited.append(record)

    def handlers(self) -> Mapping[Any, Any]:
        return {
            ListSessions: self.sessions,
            GetSession: self.session,
            ExplainSession: self.explain,
            DiscardSession: self.discard,
            KickSession: self.kick,
            GiveSession: self.give,
            ListBans: self.bans,
            AddBan: self.ban,
            RemoveBan: self.unban,
            ListFilters: self.filters,
            GetFilter: self.filter,
            PutFilter: self.put_filter,
            DeleteFilter: self.delete_filter,
            RotateLog: self.rotate,
            ListDatabases: self.databases,
            GetConfig: self.config,
            GetStats: self.stats,
            GetOverview: self.overview,
            ListAcl: self.acl,
            GetAclText: self.acl_text,
            PutAclText: self.put_acl,
        }

    def take(self, request: Any, *, may_refuse: bool = False) -> None:
        self.asked.append(request)
        if self.refusal is not None and may_refuse:
            raise self.refusal
        client_id = getattr(request, "client_id", self._known)
        if client_id != self._known:
            raise Refused("not_found", f"there is no session {client_id!r}")

    async def sessions(self, request: ListSessions, _call: object) -> SessionPage:
        self.take(request, may_refuse=True)
        names = [self._known, *(f"c{number}" for number in range(self.rows))]
        first = int(request.cursor or 0)
        until = first + self.page
        return SessionPage(
            items=[SessionRow(client_id=name, **SESSION) for name in names[first:until]],
            next_cursor=str(until) if until < len(names) else None,
        )

    async def session(self, request: GetSession, _call: object) -> SessionDetail:
        self.take(request)
        return SessionDetail(
            client_id=request.client_id, **SESSION, subscriptions=[SUBSCRIPTION], **DETAIL
        )

    async def explain(self, request: ExplainSession, _call: object) -> Explanation:
        self.take(request)
        found = Finding("delivery", False, "window_full", "full")
        return Explanation(request.client_id, request.topic, "window_full", "full", [found])

    async def discard(self, request: DiscardSession, _call: object) -> Outcome:
        self.take(request, may_refuse=True)
        return Outcome(request.client_id, "discarded")

    async def kick(self, request: KickSession, _call: object) -> Outcome:
        self.take(request)
        return Outcome(request.client_id, "kicked")

    async def give(self, request: GiveSession, _call: object) -> Outcome:
        self.take(request)
        return Outcome(request.client_id, "given")

    async def bans(self, request: ListBans, _call: object) -> BanPage:
        made = [Ban(kind="client_id", value=f"c{number}", reason="", **TIMES) for number in (0, 1)]
        return BanPage(items=made)

    async def ban(self, request: AddBan, _call: object) -> BanMade:
        self.take(request)
        return BanMade(
            kind=request.kind, value=request.value, reason=request.reason, closed=1, **TIMES
        )

    async def unban(self, request: RemoveBan, _call: object) -> BanRemoved:
        self.take(request)
        if request.value != "there":
            raise Refused("not_found", f"there is no ban of {request.kind} {request.value!r}")
        return BanRemoved(request.kind, request.value)

    async def filters(self, _request: ListFilters, _call: object) -> FilterPage:
        return FilterPage(items=[Filter(**FILTER)])

    async def filter(self, request: GetFilter, _call: object) -> Filter:
        if request.id != FILTER["id"]:
            raise Refused("not_found", f"there is no stored content filter {request.id!r}")
        return Filter(**FILTER)

    async def put_filter(self, request: PutFilter, _call: object) -> FilterStored:
        self.take(request, may_refuse=True)
        return FilterStored(**{**FILTER, "id": request.id, "filter": request.filter}, changed=2)

    async def delete_filter(self, request: DeleteFilter, _call: object) -> FilterDeleted:
        self.take(request)
        return FilterDeleted(request.id)

    async def config(self, request: GetConfig, _call: object) -> ConfigPage:
        self.take(request)
        rows = []
        for item in effective(load(environ={}, sets=self.sets)):
            value, origin = self.changed.get(item.path, (item.value, str(item.origin)))
            rows.append(
                SettingRow(
                    setting=item.path,
                    value=value,
                    origin=origin,
                    unit=item.setting.unit,
                    reload=item.setting.reload,
                    description="",
                )
            )
        return ConfigPage(items=rows, estimated_total=len(rows), revision="1")

    async def databases(self, request: ListDatabases, _call: object) -> DatabasePage:
        self.take(request)
        row = Database(
            database="log",
            backend="rocksdb",
            durability="fsync",
            shards=1,
            generations=1,
            message_count=0,
            bytes=0,
            last_offset=None,
            last_at=None,
        )
        return DatabasePage(items=[row], estimated_total=1)

    async def rotate(self, request: RotateLog, _call: object) -> NewGeneration:
        self.take(request, may_refuse=True)
        self.structure = request.structure
        return NewGeneration(generation=2, created_at=None, created_at_us=0)

    async def stats(self, _request: GetStats, _call: object) -> Stats:
        return stats(self.storage, phase=self.phase)

    async def overview(self, request: GetOverview, _call: object) -> Overview:
        if request.node not in ("", "*", "n", "n2"):
            raise Refused("not_found", f"no node {request.node!r} was heard of")
        return overview(request.node or "n", storage=self.storage)

    async def acl(self, _request: ListAcl, _call: object) -> AclPage:
        rule = AclRule(number=1, who="anonymous", user=None, access="read", filter="a/#")
        items = [rule] if self.rules else []
        return AclPage(items=items, enforced=bool(self.rules), revision="r1")

    async def acl_text(self, _request: GetAclText, _call: object) -> AclText:
        return AclText(text=self.rules, revision="r1")

    async def put_acl(self, request: PutAclText, _call: object) -> AclChange:
        self.take(request, may_refuse=True)
        return AclChange(rules=len(request.text.splitlines()), revision="r2", closed=3)
