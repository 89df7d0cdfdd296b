"""The administration service: right, handler and audit record of each operation, in one place.

Invariant: nothing is changed for an administrator but through ``AdminService.answer``, and each
change, and each one that was refused, is handed to the audit hook before it is answered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias, final

import msgspec

from perdure.admin.audit import AuditHook, AuditRecord
from perdure.admin.described import unfit
from perdure.admin.operation import Operation, Request
from perdure.admin.problems import Refused, problem_of
from perdure.admin.rights import Principal, may, may_touch, what_is_missing
from perdure.admin.table import OPERATIONS, operation_of
from perdure.admin.wire import decode_given
from perdure.clock import Clock
from perdure.errors import PerdureError, StorageError
from perdure.observe.logs import get_logger

log = get_logger("admin")

TARGET_CHARS_MAX: Final = 1_000
"""Longest target of an audit record; many sessions may be named in one request."""


class Call:
    """One operation under way.

    Attributes:
        principal: who asks.
        request_id: of the HTTP request, or empty.
        before, after: what a handler says of the record that it changes, for the audit.
    """

    __slots__ = ("after", "before", "principal", "request_id")

    def __init__(self, principal: Principal, request_id: str = "") -> None:
        self.principal = principal
        self.request_id = request_id
        self.before: Any = None
        self.after: Any = None


Handler: TypeAlias = Callable[[Any, Call], Awaitable[Any]]
"""Takes an operation's request and returns its result; raises ``PerdureError`` to refuse."""


class Operations(Protocol):
    """The handlers of a resource."""

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        """By the class of their requests."""
        ...


@final
class AuditLog:
    """The audit hook that writes lines to the broker's log."""

    async def record(self, record: AuditRecord) -> None:
        """Write one."""
        log.info(
            "admin.changed",
            operation=record.operation,
            target=record.target,
            principal=record.principal,
            source=record.source,
            peer=record.peer,
            request_id=record.request_id,
            outcome=record.outcome,
        )


@final
class AdminService:
    """Answers every operation.

    Args:
        operations: the handlers.
        audit: is told of every change.
        clock: wall time.
    """

    def __init__(self, operations: list[Operations], *, audit: AuditHook, clock: Clock) -> None:
        self._handlers: dict[str, Handler] = {}
        for each in operations:
            for request, handler in each.handlers().items():
                self._handlers[operation_of(request).name] = handler
        self._audit = audit
        self._clock = clock

    async def answer(self, name: str, request: bytes, call: Call) -> Any:
        """The result of an operation.

        Args:
            name: of the operation.
            request: its fields, JSON.
            call: who asks.

        Raises:
            PerdureError: it was refused (``problems.problem_of``).
        """
        operation = OPERATIONS.get(name)
        handler = self._handlers.get(name)
        if operation is None:
            raise Refused("unknown_operation", f"there is no operation {name!r:.100}")
        try:
            decoded = decode_given(request, operation.request)
        except ValueError as error:
            raise unfit(operation, error) from error
        log.debug("admin.asked", operation=name, principal=call.principal.name)
        outcome = "internal"
        try:
            _check_right(operation, decoded, call.principal)
            if handler is None:
                raise Refused("not_available", f"this broker cannot do {name}")
            result = await handler(decoded, call)
            outcome = "ok"
        except PerdureError as error:
            outcome = problem_of(error).code
            raise
        finally:
            if operation.changes:
                await self._keep(self._record(operation, decoded, call, outcome))
        return result

    async def _keep(self, record: AuditRecord) -> None:
        try:
            await self._audit.record(record)
        except StorageError:
            # Of what was not done the caller is told why: that says more.
            if record.outcome == "ok":
                raise

    def _record(
        self, operation: Operation, request: Request[Any], call: Call, outcome: str
    ) -> AuditRecord:
        fields = msgspec.to_builtins(request)
        target = fields.get(operation.target, "")
        if isinstance(target, list):
            target = ",".join(map(str, target))
        principal = call.principal
        return AuditRecord(
            at_us=self._clock.now_us(),
            principal=principal.name,
            role=principal.role,
            source=principal.source,
            peer=principal.peer,
            request_id=call.request_id,
            operation=operation.name,
            target=str(target)[:TARGET_CHARS_MAX],
            request={key: fields[key] for key in fields if key not in operation.secret},
            before=msgspec.to_builtins(call.before),
            after=msgspec.to_builtins(call.after),
            outcome=outcome,
        )


def _check_right(operation: Operation, request: Request[Any], principal: Principal) -> None:
    if not may(principal, operation.right, operation.name):
        raise Refused(
            "forbidden",
            f"{principal.name} ({principal.role}) may not {operation.name}",
            hint=what_is_missing(principal, operation.right, operation.name),
        )
    topics = operation.topics(request) if operation.topics is not None else ()
    if not may_touch(principal, topics):
        raise Refused(
            "forbidden",
            f"{principal.name} may have topics of {', '.join(principal.topic_filters)} only",
        )
