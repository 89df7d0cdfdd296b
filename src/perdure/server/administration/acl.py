"""Operations on the ACL file."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from perdure.admin.operation import Request
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
from perdure.admin.revisions import check_revision, revision_of
from perdure.broker.auth.acl_rules import ACL_FILE_BYTES_MAX, AclRules
from perdure.broker.auth.control import AccessControl
from perdure.broker.auth.private_file import Identity, read_file, save_file
from perdure.broker.services import Services
from perdure.errors import ConfigError
from perdure.server.administration.access import put_in_force
from perdure.server.administration.paging import page_of
from perdure.server.administration.service import Call, Handler


@final
class AclOperations:
    """Answers what is asked of the rules.

    Args:
        services: the parts of the broker.
        access: decides who is let in; None = in tests, nobody is asked.
    """

    def __init__(self, services: Services, access: AccessControl | None) -> None:
        self._services = services
        self._access = access
        self._lock = asyncio.Lock()

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        """By request."""
        return {ListAcl: self.list_page, GetAclText: self.text, PutAclText: self.replace}

    async def list_page(self, request: ListAcl, _call: Call) -> AclPage:
        """A page of rules."""
        rules = self._access.rules if self._access is not None else None
        listed = [] if rules is None else rules.listed
        rows = [
            AclRule(
                number=number,
                who=each.who,
                user=each.user,
                access=each.rule.permission.value,
                filter=each.rule.filter,
            )
            for number, each in enumerate(listed, start=1)
        ]
        items, following = page_of(rows, request, lambda row: f"{row.number:09}")
        return AclPage(
            items=items,
            next_cursor=following,
            estimated_total=len(rows),
            enforced=rules is not None,
            revision=revision_of(rows),
        )

    async def text(self, _request: GetAclText, _call: Call) -> AclText:
        """The file."""
        text, _ = await asyncio.to_thread(_read, self._path())
        return AclText(text=text, revision=revision_of(text))

    async def replace(self, request: PutAclText, call: Call) -> AclChange:
        """Another file in its place; it holds for connected clients at once."""
        path = self._path()
        assert self._access is not None

        def work() -> tuple[str, int]:
            before, state = _read(path)
            check_revision(request.if_match, revision_of(before), "the ACL file")
            rules = AclRules.parse(request.text, name="text")
            save_file(path, request.text.encode(), read=state)
            return before, len(rules.listed)

        async with self._lock:
            before, count = await asyncio.to_thread(work)
            closed = await put_in_force(self._services, self._access)
        made = AclChange(rules=count, revision=revision_of(request.text), closed=closed)
        call.before, call.after = {"revision": revision_of(before)}, made
        return made

    def _path(self) -> Path:
        path = self._services.auth_config.acl_file
        if not path or self._access is None:
            raise Refused(
                "not_available", "this broker has no ACL file", hint="auth.acl_file names one"
            )
        return Path(path)


def _read(path: Path) -> tuple[str, Identity]:
    try:
        data, state = read_file(path, name="ACL file", bytes_max=ACL_FILE_BYTES_MAX)
        return data.decode("utf-8-sig"), state
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8") from None
