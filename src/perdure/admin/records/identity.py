"""Who administers the broker: users, API keys, and the record of changes."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias, final

import msgspec
from msgspec import Meta

from perdure.admin.limits import Cursor, Filter, Limit, Revision
from perdure.admin.operation import Http, Operation, Page, Request

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=64)]
Password: TypeAlias = Annotated[str, Meta(min_length=1, max_length=1_024)]
Text: TypeAlias = Annotated[str, Meta(max_length=100)]


class UserRow(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who may log in.

    Attributes:
        name: unique.
        role: ``viewer``, ``operator`` or ``admin``.
        created_at, created_at_us: wall time.
        changed_at, changed_at_us: of the last change of role or password.
        last_login_at, last_login_at_us: null = never.
        revision: changes with role and password; for ``If-Match``.
    """

    name: str
    role: str
    created_at: str | None
    created_at_us: int
    changed_at: str | None
    changed_at_us: int
    last_login_at: str | None
    last_login_at_us: int | None
    revision: str


@final
class UserPage(Page[UserRow], frozen=True, kw_only=True):
    """Users, by name."""


@final
class UserOutcome(msgspec.Struct, frozen=True):
    """What was done to a user."""

    name: str
    action: str


class KeyRow(msgspec.Struct, frozen=True, kw_only=True):
    """A program's way in.

    Attributes:
        id: its public half.
        name: what it is for.
        role: what it may do at most.
        scopes: operations or resources that it may have below that; empty = all.
        topic_filters: topics that it may read and publish; empty = all.
        created_at, created_at_us, created_by: when, and by whom.
        expires_at, expires_at_us: null = never.
        last_used_at, last_used_at_us: within a minute; null = never.
    """

    id: str
    name: str
    role: str
    scopes: list[str]
    topic_filters: list[str]
    created_at: str | None
    created_at_us: int
    created_by: str
    expires_at: str | None
    expires_at_us: int | None
    last_used_at: str | None
    last_used_at_us: int | None


@final
class KeyMade(KeyRow, frozen=True, kw_only=True):
    """A key that was made.

    Attributes:
        secret: what is presented as a bearer token; it is told this once.
    """

    secret: str


@final
class KeyPage(Page[KeyRow], frozen=True, kw_only=True):
    """Keys, the newest first; those that have expired too."""


@final
class KeyOutcome(msgspec.Struct, frozen=True):
    """What was done to a key."""

    id: str
    action: str


class AuditRow(msgspec.Struct, frozen=True, kw_only=True):
    """One change, or one that was refused.

    Attributes:
        offset: of the record in the log.
        at, at_us: wall time.
        principal, role, source, peer: who, proved by what, and from where.
        request_id: stands in the HTTP answer and in the log too; empty = the admin socket.
        operation, target: what was done, to what.
        request: what was asked, without secrets.
        before, after: the record that was changed; null = there was none, or it is not known.
        outcome: ``ok`` or the code of the refusal.
    """

    offset: int
    at: str | None
    at_us: int
    principal: str
    role: str
    source: str
    peer: str
    request_id: str
    operation: str
    target: str
    request: dict[str, Any]
    before: Any
    after: Any
    outcome: str


@final
class AuditPage(Page[AuditRow], frozen=True, kw_only=True):
    """Changes, the newest first."""


class ListUsers(Request[UserPage], frozen=True, kw_only=True):
    """All users.

    Attributes:
        sort: ``-`` before a column = the greatest first; empty = by the list's own key.
    """

    limit: Limit = 100
    cursor: Cursor = ""
    sort: Literal[
        "", "role", "-role", "created_at", "-created_at", "last_login_at", "-last_login_at"
    ] = ""


class GetUser(Request[UserRow], frozen=True, kw_only=True):
    """One user."""

    name: Name


class AddUser(Request[UserRow], frozen=True, kw_only=True):
    """Add a user."""

    name: Name
    role: str
    password: Password


class SetRole(Request[UserRow], frozen=True, kw_only=True):
    """Give a user another role; it holds for open logins at once.

    Attributes:
        if_match: over HTTP the header ``If-Match``.
    """

    name: Name
    role: str
    if_match: Revision = ""


class SetPassword(Request[UserRow], frozen=True, kw_only=True):
    """Give a user another password; all their logins end.

    Attributes:
        if_match: over HTTP the header ``If-Match``.
    """

    name: Name
    password: Password
    if_match: Revision = ""


class EndLogins(Request[UserOutcome], frozen=True, kw_only=True):
    """Log a user out everywhere."""

    name: Name


class RemoveUser(Request[UserOutcome], frozen=True, kw_only=True):
    """Remove a user, whose logins end.

    Attributes:
        if_match: over HTTP the header ``If-Match``.
    """

    name: Name
    if_match: Revision = ""


class ListKeys(Request[KeyPage], frozen=True, kw_only=True):
    """All API keys.

    Attributes:
        sort: ``-`` before a column = the greatest first; empty = by the list's own key.
    """

    limit: Limit = 100
    cursor: Cursor = ""
    sort: Literal[
        "",
        "name",
        "-name",
        "role",
        "-role",
        "expires_at",
        "-expires_at",
        "last_used_at",
        "-last_used_at",
    ] = ""


class AddKey(Request[KeyMade], frozen=True, kw_only=True):
    """Make an API key.

    Attributes:
        expires: RFC 3339, or how long from now on (``90d``); empty = never.
    """

    name: Text
    role: str
    scopes: Annotated[tuple[Text, ...], Meta(max_length=64)] = ()
    topic_filters: Annotated[tuple[Filter, ...], Meta(max_length=32)] = ()
    expires: Annotated[str, Meta(max_length=40)] = ""


class RevokeKey(Request[KeyOutcome], frozen=True, kw_only=True):
    """Take an API key back."""

    id: Name


class ListAudit(Request[AuditPage], frozen=True, kw_only=True):
    """Changes.

    Attributes:
        resource: only of this resource (``sessions``).
    """

    limit: Limit = 50
    cursor: Cursor = ""
    resource: Annotated[str, Meta(max_length=64, pattern="^[a-z_]*$")] = ""


@final
class Drained(msgspec.Struct, frozen=True):
    """How many records were brought into the log."""

    count: int


class DrainAudit(Request[Drained], frozen=True, kw_only=True):
    """Bring what was changed beside the broker (logins, changes while it stood) into the log."""


OPERATIONS: Final = (
    Operation(
        name="users.list",
        summary="Users",
        request=ListUsers,
        result=UserPage,
        right="admin",
        http=Http("GET", "/users"),
    ),
    Operation(
        name="users.get",
        summary="One user",
        request=GetUser,
        result=UserRow,
        right="admin",
        http=Http("GET", "/users/{name}"),
    ),
    Operation(
        name="users.add",
        summary="Add a user",
        request=AddUser,
        result=UserRow,
        right="admin",
        changes=True,
        http=Http("POST", "/users", 201),
        target="name",
        secret=("password",),
    ),
    Operation(
        name="users.set_role",
        summary="Give a user another role",
        request=SetRole,
        result=UserRow,
        right="admin",
        changes=True,
        http=Http("PUT", "/users/{name}/role"),
        target="name",
    ),
    Operation(
        name="users.set_password",
        summary="Give a user another password; all their logins end",
        request=SetPassword,
        result=UserRow,
        right="admin",
        changes=True,
        http=Http("PUT", "/users/{name}/password"),
        target="name",
        secret=("password",),
    ),
    Operation(
        name="users.logout",
        summary="Log a user out everywhere",
        request=EndLogins,
        result=UserOutcome,
        right="admin",
        changes=True,
        http=Http("DELETE", "/users/{name}/logins"),
        target="name",
    ),
    Operation(
        name="users.remove",
        summary="Remove a user",
        request=RemoveUser,
        result=UserOutcome,
        right="admin",
        changes=True,
        http=Http("DELETE", "/users/{name}"),
        target="name",
    ),
    Operation(
        name="api_keys.list",
        summary="API keys",
        request=ListKeys,
        result=KeyPage,
        right="admin",
        http=Http("GET", "/api-keys"),
    ),
    Operation(
        name="api_keys.add",
        summary="Make an API key, whose secret is shown this once",
        request=AddKey,
        result=KeyMade,
        right="admin",
        changes=True,
        http=Http("POST", "/api-keys", 201),
        target="name",
    ),
    Operation(
        name="api_keys.revoke",
        summary="Take an API key back",
        request=RevokeKey,
        result=KeyOutcome,
        right="admin",
        changes=True,
        http=Http("DELETE", "/api-keys/{id}"),
        target="id",
    ),
    Operation(
        name="audit.list",
        summary="What administrators have changed",
        request=ListAudit,
        result=AuditPage,
        right="admin",
        http=Http("GET", "/audit"),
    ),
    Operation(
        name="audit.drain",
        summary="Bring records of changes made beside the broker into its log",
        request=DrainAudit,
        result=Drained,
        right="admin",
    ),
)
