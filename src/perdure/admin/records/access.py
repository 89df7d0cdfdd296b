"""Who may connect by the password file, and what the ACL file allows."""

from __future__ import annotations

from typing import Annotated, Final, Literal, final

import msgspec
from msgspec import Meta

from perdure.admin.limits import Cursor, Limit, Revision
from perdure.admin.operation import Http, Operation, Page, Request

IMPORT_MAX: Final = 200
"""Users of one import: each password takes some tens of milliseconds."""

ACL_CHARS_MAX: Final = 8 * 1024 * 1024
"""Of an ACL file that is replaced in one request."""

User = Annotated[str, Meta(min_length=1, max_length=1_024)]
Secret = Annotated[str, Meta(min_length=1, max_length=65_535)]


@final
class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """A user of the password file.

    Attributes:
        user: name.
        passwords: kinds of its password hashes.
        tokens: how many tokens it has.
        revision: changes with each of them; for ``If-Match``.
    """

    user: str
    passwords: list[str]
    tokens: int
    revision: str


@final
class CredentialPage(Page[Credential], frozen=True, kw_only=True):
    """A page of users, by name."""


@final
class CredentialChange(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to a user.

    Attributes:
        user: name.
        action: ``added``, ``changed``, ``deleted`` or ``token_added``.
        token: a new one, which is shown this once.
        closed: connections that were closed, as they would not be let in again.
    """

    user: str
    action: str
    token: str | None = None
    closed: int = 0


@final
class CredentialChanges(msgspec.Struct, frozen=True):
    """What was done to several users."""

    items: list[CredentialChange]


@final
class NewCredential(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user of an import.

    Attributes:
        user: name.
        password: its password.
    """

    user: User
    password: Secret


class ListCredentials(Request[CredentialPage], frozen=True, kw_only=True):
    """Users of the password file.

    Attributes:
        sort: ``-`` before a column = the greatest first; empty = by the list's own key.
    """

    limit: Limit = 100
    cursor: Cursor = ""
    sort: Literal["", "tokens", "-tokens"] = ""


class PutCredential(Request[CredentialChange], frozen=True, kw_only=True):
    """Set a user's password; a new user is added.

    Attributes:
        scram: SCRAM-SHA-256 is allowed with it, too.
        if_match: over HTTP the header ``If-Match``.
    """

    user: User
    password: Secret
    scram: bool = False
    if_match: Revision = ""


class GetCredential(Request[Credential], frozen=True, kw_only=True):
    """One user of the password file."""

    user: User


class AddToken(Request[CredentialChange], frozen=True, kw_only=True):
    """Make a random token for a user, who is added if new."""

    user: User


class DeleteCredential(Request[CredentialChange], frozen=True, kw_only=True):
    """Remove a user; its clients are disconnected.

    Attributes:
        if_match: over HTTP the header ``If-Match``.
    """

    user: User
    if_match: Revision = ""


class ImportCredentials(Request[CredentialChanges], frozen=True, kw_only=True):
    """Set the passwords of several users, in one change of the file."""

    users: Annotated[list[NewCredential], Meta(min_length=1, max_length=IMPORT_MAX)]


@final
class AclRule(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the ACL file.

    Attributes:
        number: its place in the order of the list.
        who: ``anonymous``, ``user`` or ``pattern`` (of all, with ``%c`` and ``%u``).
        user: its name; null = ``who`` is none.
        access: ``read``, ``write``, ``readwrite`` or ``deny``.
        filter: topic filter.
    """

    number: int
    who: str
    user: str | None
    access: str
    filter: str


@final
class AclPage(Page[AclRule], frozen=True, kw_only=True):
    """A page of rules. Without an ACL file there are none, and everything is allowed.

    Attributes:
        enforced: there is an ACL file.
        revision: changes with each rule.
    """

    enforced: bool
    revision: str


class ListAcl(Request[AclPage], frozen=True, kw_only=True):
    """The rules of the ACL file."""

    limit: Limit = 100
    cursor: Cursor = ""


@final
class AclText(msgspec.Struct, frozen=True, kw_only=True):
    """The ACL file as it stands.

    Attributes:
        text: lines, with comments.
        revision: changes with the text; for ``If-Match``.
    """

    text: str
    revision: str


@final
class AclChange(msgspec.Struct, frozen=True, kw_only=True):
    """A new ACL file is in force.

    Attributes:
        rules: that it has.
        revision: of its text.
        closed: connections that were closed, as they would not be let in again.
    """

    rules: int
    revision: str
    closed: int


class GetAclText(Request[AclText], frozen=True, kw_only=True):
    """The ACL file."""


class PutAclText(Request[AclChange], frozen=True, kw_only=True):
    """Replace the ACL file; it holds for connected clients at once.

    Attributes:
        text: lines as in the file; one that is wrong leaves all as it was.
        if_match: over HTTP the header ``If-Match``.
    """

    text: Annotated[str, Meta(max_length=ACL_CHARS_MAX)]
    if_match: Revision = ""


OPERATIONS: Final = (
    Operation(
        name="credentials.list",
        summary="Users of the password file",
        request=ListCredentials,
        result=CredentialPage,
        right="operator",
        http=Http("GET", "/credentials"),
    ),
    Operation(
        name="credentials.get",
        summary="One user of the password file",
        request=GetCredential,
        result=Credential,
        right="operator",
        http=Http("GET", "/credentials/{user}"),
    ),
    Operation(
        name="credentials.put",
        summary="Set a user's password",
        request=PutCredential,
        result=CredentialChange,
        right="admin",
        changes=True,
        http=Http("PUT", "/credentials/{user}"),
        target="user",
        secret=("password",),
    ),
    Operation(
        name="credentials.add_token",
        summary="Make a token for a user",
        request=AddToken,
        result=CredentialChange,
        right="admin",
        changes=True,
        http=Http("POST", "/credentials/{user}/tokens", status=201),
        target="user",
    ),
    Operation(
        name="credentials.delete",
        summary="Remove a user",
        request=DeleteCredential,
        result=CredentialChange,
        right="admin",
        changes=True,
        http=Http("DELETE", "/credentials/{user}"),
        target="user",
    ),
    Operation(
        name="credentials.import",
        summary="Set the passwords of several users",
        request=ImportCredentials,
        result=CredentialChanges,
        right="admin",
        changes=True,
        http=Http("POST", "/credentials:import"),
        secret=("users",),
    ),
    Operation(
        name="acl.list",
        summary="Rules of the ACL file",
        request=ListAcl,
        result=AclPage,
        http=Http("GET", "/acl"),
    ),
    Operation(
        name="acl.text",
        summary="The ACL file as it stands",
        request=GetAclText,
        result=AclText,
        right="operator",
        http=Http("GET", "/acl/text"),
    ),
    Operation(
        name="acl.replace",
        summary="Replace the ACL file",
        request=PutAclText,
        result=AclChange,
        right="admin",
        changes=True,
        http=Http("PUT", "/acl/text"),
        secret=("text",),
    ),
)
