"""One HTTP connection: uvicorn's, with a deadline for whatever its peer may leave undone.

========  =====================================================  ======================
awaited   until                                                  setting
========  =====================================================  ======================
HEAD      the head of the first request, or of one that began    ``http.head_timeout_s``
BODY      the end of a body, whether somebody reads it or not    ``http.body_timeout_s``
IDLE      the first byte of another request                      ``http.idle_timeout_s``
ANSWER    nothing of the peer: we are to answer
========  =====================================================  ======================

Beside them runs ``http.send_timeout_s`` while the peer does not take what was sent. A deadline does
not move while bytes trickle. Invariant: whatever bytes come, the peer is answered with a problem,
if no answer was begun, and the log has at most a line.
"""

from __future__ import annotations

import asyncio
import math
import sys
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, final

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from perdure.pipeline.protocol import Problem, problem_of
from perdure.web.gate import ANSWERING, BODY, STALLED, WAITING, Gate
from perdure.web.problems import CODES
from perdure.web.traffic import Drop

if TYPE_CHECKING:
    import uvicorn
    from uvicorn.server import ServerState

    from perdure.web.context import Context

AWAITS_HEAD: Final = 0
AWAITS_BODY: Final = 1
AWAITS_IDLE: Final = 2
AWAITS_ANSWER: Final = 3

_STAGE_OF: Final = (WAITING, BODY, WAITING, ANSWERING)

CLOSE_TIMEOUT_S: Final = 5.0
"""For the last bytes of a connection that we have closed."""

REASON_CHARS_MAX: Final = 200


@final
class BoundedConnection(H11Protocol):
    """See the module.

    Args:
        config: of the server.
        state: of the server.
        loop: that it runs on.
        gate: which holds it.
        context: of the process.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        state: ServerState,
        loop: asyncio.AbstractEventLoop,
        *,
        gate: Gate,
        context: Context,
    ) -> None:
        super().__init__(config=config, server_state=state, app_state={}, _loop=loop)
        settings = context.settings
        self.is_reserve = False
        self.opening: asyncio.Task[None] | None = None
        """Brings the socket to a transport."""
        self._gate = gate
        self._context = context
        self._piece = settings.head_bytes_max
        self._timeouts_s = (
            settings.head_timeout_s,
            settings.body_timeout_s,
            settings.idle_timeout_s,
            math.inf,
        )
        self._send_timeout_s = settings.send_timeout_s
        self._awaited = AWAITS_HEAD
        self._seen: object = None
        self._deadline_s = loop.time() + settings.head_timeout_s
        self._taken_by_s = math.inf
        self._closed_by_s = math.inf

    # What the transport calls.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The socket is there, and TLS on it."""
        super().connection_made(transport)
        if self.is_reserve:
            self.app_state["is_reserve"] = True

    def data_received(self, data: bytes) -> None:
        """Take bytes; a head that is too long is refused although all of it came at once."""
        for at in range(0, len(data), self._piece):
            if self.transport.is_closing():
                return
            super().data_received(data[at : at + self._piece])
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone, or we are."""
        self._gate.leave(self)
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def pause_writing(self) -> None:
        """The peer does not take what we send."""
        super().pause_writing()
        self._taken_by_s = self.loop.time() + self._send_timeout_s
        self._gate.put(self, STALLED)

    def resume_writing(self) -> None:
        """It does again."""
        super().resume_writing()
        self._taken_by_s = math.inf
        self._gate.put(self, _STAGE_OF[self._awaited])

    # What the server calls.

    def on_response_complete(self) -> None:
        """An answer is sent; the next request may be there already."""
        super().on_response_complete()
        self._look()

    def shutdown(self) -> None:
        """The process ends: close, once what is being answered is answered."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False
        else:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """What came is no HTTP."""
        error = sys.exception()
        status = int(getattr(error, "error_status_hint", 400))
        reason = (str(error) or msg)[:REASON_CHARS_MAX]
        if status == CODES["head_too_large"]:
            problem = problem_of(
                "head_too_large", "the head of the request is too long", "see http.head_bytes_max"
            )
        else:
            problem = Problem("bad_request", f"this is no HTTP request: {reason}")
        self._drop("malformed", status, problem, reason=reason)

    # What the acceptor and the gate call.

    def turned_away(self) -> None:
        """There was no place for it."""
        self._context.traffic.dropped("refused")

    def evict(self) -> None:
        """Somebody else needs the place."""
        self._context.traffic.dropped("evicted")
        self._leave()

    def check(self, now_s: float) -> None:
        """Look at the deadlines."""
        if self.transport is None:
            return  # opening a connection has a deadline of its own
        if self.transport.is_closing():
            if self._closed_by_s == math.inf:
                self._closed_by_s = now_s + CLOSE_TIMEOUT_S
            elif now_s >= self._closed_by_s:
                self.transport.abort()
        elif now_s >= self._taken_by_s:
            self._context.traffic.dropped("send_timeout")
            self._leave()
        elif now_s >= self._deadline_s:
            self._late()

    # Inside.

    def _late(self) -> None:
        if self._awaited == AWAITS_IDLE:
            self.transport.close()
            return
        drop: Drop = "head_timeout" if self._awaited == AWAITS_HEAD else "body_timeout"
        what = drop.removesuffix("_timeout")
        problem = problem_of(
            "timeout", f"the {what} of the request did not come in time", f"see http.{drop}_s"
        )
        self._drop(drop, CODES["timeout"], problem)

    def _look(self) -> None:
        """Find out what is awaited now; only something else has a new deadline."""
        if self.transport.is_closing():
            return
        cycle = self.cycle
        if self.conn.their_state is h11.SEND_BODY:
            awaited = AWAITS_BODY
        elif cycle is None or self.conn.trailing_data[0]:
            awaited = AWAITS_HEAD
        else:
            awaited = AWAITS_IDLE
        if cycle is not None:
            if cycle.scope is not self._seen:
                cycle.keep_alive = cycle.keep_alive and not self.is_reserve
            if awaited != AWAITS_BODY and not cycle.response_complete:
                awaited = AWAITS_ANSWER
        seen = None if cycle is None else cycle.scope
        if awaited == self._awaited and seen is self._seen:
            return
        self._awaited, self._seen = awaited, seen
        self._deadline_s = self.loop.time() + self._timeouts_s[awaited]
        if self._taken_by_s == math.inf:
            self._gate.put(self, _STAGE_OF[awaited])

    def _drop(self, why: Drop, status: int, problem: Problem, *, reason: str = "") -> None:
        """Answer with a problem, if no answer was begun, and close."""
        self._context.traffic.dropped(why)
        self._context.report(
            "http.dropped",
            peer=self.client[0] if self.client else "",
            status=status,
            code=problem.code,
            reason=reason or problem.message,
        )
        cycle = self.cycle
        begun = cycle is not None and cycle.response_started and not cycle.response_complete
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        if not begun:
            self.transport.write(_raw_answer(status, problem))
        self._unset_keepalive_if_required()
        self.transport.close()

    def _leave(self) -> None:
        """Close without a word."""
        if self.transport is not None:
            self.transport.abort()
        elif self.opening is not None:
            self.opening.cancel()


def _raw_answer(status: int, problem: Problem) -> bytes:
    """An answer to what is no request that could be answered in order."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    body = msgspec.json.encode(problem)
    head = (
        f"HTTP/1.1 {status} {phrase}\r\nserver: perdure\r\ncontent-type: application/json\r\n"
        f"cache-control: no-store\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
