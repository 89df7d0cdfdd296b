"""Operations on users of the password file."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, final

from perdure.admin.operation import Request
from perdure.admin.problems import Refused
from perdure.admin.records.access import (
    AddToken,
    Credential,
    CredentialChange,
    CredentialChanges,
    CredentialPage,
    DeleteCredential,
    GetCredential,
    ImportCredentials,
    ListCredentials,
    PutCredential,
)
from perdure.admin.revisions import check_revision, revision_of
from perdure.broker.access.revoking import revoke
from perdure.broker.auth.control import AccessControl, read_files
from perdure.broker.auth.credentials import CredentialsFile
from perdure.broker.services import Services
from perdure.server.administration.credential_view import CredentialView
from perdure.server.administration.paging import sorted_page
from perdure.server.administration.service import Call, Handler

SALT_BYTES: Final = 16
TOKEN_BYTES: Final = 32

T = TypeVar("T")


@final
class AccessOperations:
    """Answers what is asked of users.

    A change of the file takes effect at once: it is read again, and who would not be let in any
    more is disconnected.

    Args:
        services: the parts of the broker.
        access: decides who is let in; None = in tests, nobody is asked.
    """

    def __init__(self, services: Services, access: AccessControl | None) -> None:
        self._services = services
        self._access = access
        self._lock = asyncio.Lock()
        self._view = CredentialView(lambda: None if access is None else access.credentials)

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        """By request."""
        return {
            ListCredentials: self.list_page,
            GetCredential: self.get,
            PutCredential: self.put,
            AddToken: self.add_token,
            DeleteCredential: self.delete,
            ImportCredentials: self.import_all,
        }

    async def list_page(self, request: ListCredentials, _call: Call) -> CredentialPage:
        """A page of users."""
        return await asyncio.to_thread(_page, self._view, self._path(), request)

    async def get(self, request: GetCredential, _call: Call) -> Credential:
        """One of them."""
        file, _ = await asyncio.to_thread(self._view.look, self._path())
        if request.user not in file:
            raise Refused("not_found", f"there is no user {request.user!r}")
        return _row(file, request.user)

    async def put(self, request: PutCredential, call: Call) -> CredentialChange:
        """Set a password."""

        def change(file: CredentialsFile) -> str:
            known = request.user in file
            _check(file, request.user, request.if_match)
            call.before = _row(file, request.user) if known else None
            schemes: Any = ("scrypt", "scram-sha-256") if request.scram else ("scrypt",)
            _set_password(file, request.user, request.password, schemes)
            call.after = _row(file, request.user)
            return "changed" if known else "added"

        action, closed = await self._change(change)
        return CredentialChange(user=request.user, action=action, closed=closed)

    async def add_token(self, request: AddToken, call: Call) -> CredentialChange:
        """Make a token."""
        token = secrets.token_urlsafe(TOKEN_BYTES)

        def change(file: CredentialsFile) -> None:
            call.before = _row(file, request.user) if request.user in file else None
            file.add_token(request.user, token)
            call.after = _row(file, request.user)

        _, closed = await self._change(change)
        return CredentialChange(user=request.user, action="token_added", token=token, closed=closed)

    async def delete(self, request: DeleteCredential, call: Call) -> CredentialChange:
        """Remove a user."""

        def change(file: CredentialsFile) -> None:
            if request.user not in file:
                raise Refused("not_found", f"there is no user {request.user!r}")
            _check(file, request.user, request.if_match)
            call.before = _row(file, request.user)
            file.delete(request.user)

        _, closed = await self._change(change)
        return CredentialChange(user=request.user, action="deleted", closed=closed)

    async def import_all(self, request: ImportCredentials, call: Call) -> CredentialChanges:
        """Set several passwords."""

        def change(file: CredentialsFile) -> list[CredentialChange]:
            done = []
            for each in request.users:
                action = "changed" if each.user in file else "added"
                _set_password(file, each.user, each.password, ("scrypt",))
                done.append(CredentialChange(user=each.user, action=action))
            return done

        done, _ = await self._change(change)
        call.after = {"users": [each.user for each in done]}
        return CredentialChanges(done)

    def _path(self) -> str:
        path = self._services.auth_config.password_file
        if not path or self._access is None:
            raise Refused(
                "not_available",
                "this broker has no password file",
                hint="auth.password_file names one",
            )
        return path

    async def _change(self, change: Callable[[CredentialsFile], T]) -> tuple[T, int]:
        """Change the file, and have it in force; how many connections that has closed."""
        path = self._path()
        assert self._access is not None

        def work() -> T:
            file = CredentialsFile.load(path, missing_ok=True)
            done = change(file)
            file.save()
            return done

        async with self._lock:
            done = await asyncio.to_thread(work)
            closed = await put_in_force(self._services, self._access)
        return done, closed


def _page(view: CredentialView, path: str, request: ListCredentials) -> CredentialPage:
    """A page of the file, in a thread that never keeps the interpreter for long."""
    file, users = view.look(path)
    columns = {"tokens": lambda user: len(file.tokens(user))}
    names, following = sorted_page(users, request, str, columns)
    rows = [_row(file, name) for name in names]
    return CredentialPage(items=rows, next_cursor=following, estimated_total=len(file))


async def put_in_force(services: Services, access: AccessControl) -> int:
    """Read the files of the section ``auth`` again; how many connections that has closed.

    Raises:
        ConfigError: one cannot be used; all stays as it was.
    """
    files = await asyncio.to_thread(read_files, services.auth_config)
    access.reload(services.auth_config, files)
    return revoke(services, services.registry, services.shared_subscriptions)


def _check(file: CredentialsFile, user: str, asked: str) -> None:
    now = _revision(file, user) if user in file else None
    check_revision(asked, now, f"the user {user!r}")


def _revision(file: CredentialsFile, user: str) -> str:
    return revision_of(user, [entry.encode() for entry in file.entries(user)])


def _set_password(file: CredentialsFile, user: str, password: str, schemes: Any) -> None:
    file.set_password(user, password, salt=secrets.token_bytes(SALT_BYTES), schemes=schemes)


def _row(file: CredentialsFile, user: str) -> Credential:
    return Credential(
        user=user,
        passwords=[entry.encode().split("$")[1] for entry in file.hashes(user)],
        tokens=len(file.tokens(user)),
        revision=_revision(file, user),
    )
