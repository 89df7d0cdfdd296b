"""Operations on users, API keys and the audit."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, final

from perdure.admin.operation import Request
from perdure.admin.problems import Refused
from perdure.admin.records.identity import (
    AddKey,
    AddUser,
    AuditPage,
    AuditRow,
    DrainAudit,
    Drained,
    EndLogins,
    GetUser,
    KeyMade,
    KeyOutcome,
    KeyPage,
    KeyRow,
    ListAudit,
    ListKeys,
    ListUsers,
    RemoveUser,
    RevokeKey,
    SetPassword,
    SetRole,
    UserOutcome,
    UserPage,
    UserRow,
)
from perdure.config.units import format_time
from perdure.identity import passwords
from perdure.identity.expiry import expiry_us
from perdure.identity.keys import Keys
from perdure.identity.ledger import Actor, Ledger
from perdure.identity.records import ApiKey, check_name, check_password, check_role
from perdure.identity.rows import key_fields, user_fields
from perdure.identity.users import Users
from perdure.server.administration.paging import sorted_page
from perdure.server.administration.service import Call, Handler
from perdure.server.audit import FILTER, ROOT, AuditTrail

T = TypeVar("T")


@final
class IdentityOperations:
    """Answers what is asked of users, keys and the audit; a part of the broker's life.

    Args:
        ledger: of ``identity.db``, which is written in threads.
        trail: the audit.
    """

    name: str = "identity"

    def __init__(self, ledger: Ledger, trail: AuditTrail) -> None:
        self._ledger = ledger
        self._users = Users(ledger)
        self._keys = Keys(ledger)
        self._trail = trail
        self._pool = passwords.PasswordPool(threads=1)
        self._changing = asyncio.Lock()

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        """By request."""
        return {
            ListUsers: self.list_users,
            GetUser: self.get_user,
            AddUser: self.add_user,
            SetRole: self.set_role,
            SetPassword: self.set_password,
            EndLogins: self.end_logins,
            RemoveUser: self.remove_user,
            ListKeys: self.list_keys,
            AddKey: self.add_key,
            RevokeKey: self.revoke_key,
            ListAudit: self.list_audit,
            DrainAudit: self.drain_audit,
        }

    async def start(self) -> None:
        """Take what was changed while no broker ran."""
        await self._trail.drain()

    async def stop(self) -> None:
        """Let the file and the threads go."""
        self._pool.close()
        self._ledger.file.close()

    async def list_users(self, request: ListUsers, _call: Call) -> UserPage:
        """A page of users."""
        users = await asyncio.to_thread(self._users.all)
        rows = [UserRow(**user_fields(each)) for each in users]
        columns: Mapping[str, Callable[[UserRow], Any]] = {
            "role": lambda row: row.role,
            "created_at": lambda row: row.created_at_us,
            "last_login_at": lambda row: row.last_login_at_us,
        }
        items, following = sorted_page(rows, request, lambda row: row.name, columns)
        return UserPage(items=items, next_cursor=following, estimated_total=len(rows))

    async def get_user(self, request: GetUser, _call: Call) -> UserRow:
        """One of them."""
        found = await asyncio.to_thread(self._users.find, request.name)
        if found is None:
            raise Refused("not_found", f"there is no user {request.name!r}")
        return UserRow(**user_fields(found))

    async def add_user(self, request: AddUser, call: Call) -> UserRow:
        """Add a user."""
        check_name(request.name)
        check_role(request.role)
        text = await self._text(request.name, request.password)
        user = await self._change(self._users.add, request.name, request.role, text, _actor(call))
        return UserRow(**user_fields(user))

    async def set_role(self, request: SetRole, call: Call) -> UserRow:
        """Give another role."""
        change = functools.partial(self._users.set_role, revision=request.if_match)
        user = await self._change(change, request.name, request.role, _actor(call))
        return UserRow(**user_fields(user))

    async def set_password(self, request: SetPassword, call: Call) -> UserRow:
        """Give another password."""
        text = await self._text(request.name, request.password)
        change = functools.partial(self._users.set_password, revision=request.if_match)
        user = await self._change(change, request.name, text, _actor(call))
        return UserRow(**user_fields(user))

    async def end_logins(self, request: EndLogins, call: Call) -> UserOutcome:
        """Log out everywhere."""
        await self._change(self._users.end_logins, request.name, _actor(call))
        return UserOutcome(request.name, "logged_out")

    async def remove_user(self, request: RemoveUser, call: Call) -> UserOutcome:
        """Remove a user."""
        change = functools.partial(self._users.remove, revision=request.if_match)
        await self._change(change, request.name, _actor(call))
        return UserOutcome(request.name, "removed")

    async def list_keys(self, request: ListKeys, _call: Call) -> KeyPage:
        """A page of keys."""
        keys = await asyncio.to_thread(self._keys.all)
        if request.sort:
            return _sorted_keys(keys, request)
        after = int(request.cursor) if request.cursor.isdecimal() else 0
        page = keys[after : after + request.limit]
        following = after + len(page)
        return KeyPage(
            items=[KeyRow(**key_fields(each)) for each in page],
            next_cursor=str(following) if following < len(keys) else None,
            estimated_total=len(keys),
        )

    async def add_key(self, request: AddKey, call: Call) -> KeyMade:
        """Make a key."""
        key, secret = await self._change(
            functools.partial(
                self._keys.add,
                request.name,
                request.role,
                _actor(call),
                scopes=tuple(request.scopes),
                topic_filters=tuple(request.topic_filters),
                expires_at_us=expiry_us(request.expires, self._ledger.clock.now_us()),
            )
        )
        return KeyMade(secret=secret, **key_fields(key))

    async def revoke_key(self, request: RevokeKey, call: Call) -> KeyOutcome:
        """Take a key back."""
        await self._change(self._keys.revoke, request.id, _actor(call))
        return KeyOutcome(request.id, "revoked")

    async def list_audit(self, request: ListAudit, _call: Call) -> AuditPage:
        """A page of changes, going back."""
        if request.cursor and not request.cursor.isdecimal():
            raise Refused("bad_request", "the cursor is none of this list")
        found, before = await self._trail.page(
            before_offset=int(request.cursor or 0),
            limit=request.limit,
            topic_filter=f"{ROOT}/{request.resource}/#" if request.resource else FILTER,
        )
        rows = [
            AuditRow(
                offset=offset,
                at=format_time(each.at_us),
                **{name: getattr(each, name) for name in each.__struct_fields__},
            )
            for offset, each in found
        ]
        return AuditPage(items=rows, next_cursor=str(before) if before else None)

    async def drain_audit(self, _request: DrainAudit, _call: Call) -> Drained:
        """Bring records from beside into the log."""
        return Drained(await self._trail.drain())

    async def _text(self, name: str, password: str) -> str:
        check_password(password, name=name)
        return await self._pool.run(functools.partial(passwords.hash_password, password))

    async def _change(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run what writes the file: one at a time, and beside the loop."""
        async with self._changing:
            return await asyncio.to_thread(work, *arguments)


def _sorted_keys(keys: list[ApiKey], request: ListKeys) -> KeyPage:
    rows = [KeyRow(**key_fields(each)) for each in keys]
    columns: Mapping[str, Callable[[KeyRow], Any]] = {
        "name": lambda row: row.name,
        "role": lambda row: row.role,
        "expires_at": lambda row: row.expires_at_us,
        "last_used_at": lambda row: row.last_used_at_us,
    }
    items, following = sorted_page(rows, request, lambda row: row.id, columns)
    return KeyPage(items=items, next_cursor=following, estimated_total=len(rows))


def _actor(call: Call) -> Actor:
    return Actor(call.principal, call.request_id)
