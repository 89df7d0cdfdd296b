"""Operations on traces."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, final

from perdure.admin.operation import Request
from perdure.admin.records.trace import (
    ListTraces,
    ReadTrace,
    StartTrace,
    StopTrace,
    TraceEvents,
    TracePage,
    TraceRow,
)
from perdure.server.administration.service import Call, Handler
from perdure.server.trace.traces import Traces
from perdure.topic.names import validate_topic_filter

LEVELS_MAX: Final = 65_536


@final
class TraceOperations:
    """Answers what is asked of traces.

    Args:
        traces: runs them.
    """

    def __init__(self, traces: Traces) -> None:
        self._traces = traces

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        """By request."""
        return {
            StartTrace: self.start,
            ListTraces: self.list_all,
            ReadTrace: self.read,
            StopTrace: self.stop,
        }

    async def start(self, request: StartTrace, call: Call) -> TraceRow:
        """Begin one."""
        if request.kind == "topic":
            validate_topic_filter(request.value, levels_max=LEVELS_MAX)
        trace = self._traces.start(
            request.kind, request.value, seconds=request.seconds, payloads=request.payloads
        )
        call.after = row = trace.row()
        return row

    async def list_all(self, _request: ListTraces, _call: Call) -> TracePage:
        """Those that are remembered, newest first."""
        items = [trace.row() for trace in reversed(self._traces.all())]
        return TracePage(items=items, estimated_total=len(items))

    async def read(self, request: ReadTrace, _call: Call) -> TraceEvents:
        """Events behind a number."""
        trace = self._traces.get(request.trace_id)
        skipped = max(0, request.after - (trace.count - len(trace.events)))
        items = list(islice(trace.events, skipped, skipped + request.limit))
        return TraceEvents(items=items, estimated_total=len(trace.events), trace=trace.row())

    async def stop(self, request: StopTrace, call: Call) -> TraceRow:
        """End one."""
        trace = self._traces.get(request.trace_id)
        call.before = trace.row()
        self._traces.stop(trace)
        return trace.row()
