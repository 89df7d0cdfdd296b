"""The pages of alarms, slow subscribers and traces, over an admin socket."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio

pytest.importorskip("jinja2")

from perdure.admin.problems import Refused
from perdure.admin.records.trace import (
    ListTraces,
    ReadTrace,
    TraceEvent,
    TraceEvents,
    TracePage,
    TraceRow,
)
from perdure.admin.records.watch import (
    AlarmPage,
    AlarmRow,
    GetTop,
    ListAlarms,
    ListSlow,
    SlowPage,
    Top,
    TopRow,
)
from perdure.admin.rights import Principal, Role
from perdure.clock import SystemClock
from perdure.server.administration.service import AdminService
from perdure.server.administration.socket import AdminServer
from perdure.web.context import Context
from perdure.web.dashboard import live
from perdure.web.dashboard.traces import SHOWN
from perdure.web.principals import Principals
from tests.unit.web.asgi import ask

PART = {"hx-request": "true"}
HOSTILE = "<img src=x>"


def alarm(name: str, cleared_us: int = 0) -> AlarmRow:
    return AlarmRow(
        name=name,
        state="cleared" if cleared_us else "raised",
        message=f"{name} is not well {HOSTILE}",
        value=93.5,
        threshold=85,
        raised_at=None,
        raised_at_us=1_000_000,
        cleared_at=None,
        cleared_at_us=cleared_us,
    )


class Watched:
    """A broker with two alarms, a slow client and a trace.

    Attributes:
        asked: the requests, in order.
        count: events that the trace has seen; it keeps the last ``kept``.
        running: it still listens.
    """

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.count = 0
        self.kept = 10_000
        self.running = True
        self.service = AdminService([self], audit=self, clock=SystemClock())

    async def record(self, record: object) -> None:
        raise AssertionError("nothing is changed here")

    def handlers(self) -> Mapping[Any, Any]:
        return {
            ListAlarms: self.alarms,
            GetTop: self.top,
            ListSlow: self.slow,
            ListTraces: self.traces,
            ReadTrace: self.read,
        }

    async def alarms(self, request: ListAlarms, _call: object) -> AlarmPage:
        ended = [alarm("loop_lag", 4_000_000)] if request.ended else []
        return AlarmPage(items=[alarm("disk"), *ended])

    def rows(self) -> list[TopRow]:
        return [
            TopRow(
                client_id=f"slow/{HOSTILE}",
                username=None,
                address="192.0.2.1",
                subs=1,
                pending=4321,
                inflight=20,
                rate_out=None,
                oldest_s=75,
                lag_s=75,
                is_behind=True,
                idle_s=0.5,
            )
        ]

    async def top(self, request: GetTop, _call: object) -> Top:
        self.asked.append(request)
        return Top(items=self.rows(), sessions=9, rate_in=1.5, rate_out=None)

    async def slow(self, request: ListSlow, _call: object) -> SlowPage:
        self.asked.append(request)
        return SlowPage(items=self.rows())

    def trace(self) -> TraceRow:
        return TraceRow(
            id="ab12",
            kind="topic",
            value=f"-a b/{HOSTILE}",
            running=self.running,
            payloads=True,
            begun_at=None,
            begun_at_us=1,
            until=None,
            until_us=2,
            events=self.count,
            lost=max(0, self.count - self.kept),
        )

    async def traces(self, _request: ListTraces, _call: object) -> TracePage:
        return TracePage(items=[self.trace()])

    async def read(self, request: ReadTrace, _call: object) -> TraceEvents:
        if request.trace_id != "ab12":
            raise Refused("not_found", f"there is no trace {request.trace_id!r}")
        first = max(request.after, self.count - self.kept) + 1
        items = [
            TraceEvent(
                number=number,
                at="2026-11-23T12:00:00.000000Z",
                at_us=1,
                client_id="c",
                event="publish",
                topic=HOSTILE,
                payload=HOSTILE,
                reason_code=0x87,
            )
            for number in range(first, min(self.count, first + request.limit - 1) + 1)
        ]
        return TraceEvents(items=items, trace=self.trace())


@pytest_asyncio.fixture
async def broker(tmp_path: Path, context: Context) -> AsyncIterator[Watched]:
    found = Watched()
    server = AdminServer(found.service, tmp_path / "db")
    await server.start()
    yield found
    await context.admin.close()
    await server.stop()


def become(context: Any, role: Role, *scopes: str) -> None:
    """Have every request come from a principal."""

    class Source:
        async def resolve(self, _scope: object) -> Principal:
            return Principal("p", role, scopes, source="test")

    context.principals = Principals([Source()])


async def page(app: Any, path: str, query: str = "", **headers: str) -> str:
    got = await ask(app, path, query=query, headers=headers or None)
    assert got.status == 200, got.body
    text = got.body.decode()
    assert HOSTILE not in text
    return text


async def test_alarms_that_are_raised_and_that_were(app: Any, broker: Watched) -> None:
    text = await page(app, "/ui/alarms")
    raised, ended = text.split('id="h-ended"')
    assert "disk is not well" in raised
    assert 'href="/ui/storage">Look at' in raised
    assert '93.5<span class="unit">%' in raised
    assert "loop_lag is not well" in ended
    assert ">3\u2009s<" in ended
    part = (await ask(app, "/ui/alarms", headers=PART)).body.decode()
    assert part.lstrip().startswith('<div id="alarms" data-keep="/ui/alarms" data-every="4"')


async def test_the_badge_is_told_to_who_may_see_alarms(
    app: Any, context: Any, broker: Watched
) -> None:
    sent: list[bytes] = []
    await ask(app, "/ui/live", leave_after=3, sent=sent)
    assert b'event: alarms\ndata: ["disk"]\n\n' in b"".join(sent)
    become(context, "viewer", "stats")
    sent.clear()
    await ask(app, "/ui/live", leave_after=3, sent=sent)
    assert b"event: " in b"".join(sent)
    assert b"alarms" not in b"".join(sent)


async def test_a_stream_brings_the_parts_that_its_page_names(
    app: Any, context: Any, broker: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def overview_of(_hub: object) -> bytes:
        return b"event: overview\ndata: {}\n\n"

    monkeypatch.setattr(live.Hub, "_take", overview_of)
    sent: list[bytes] = []
    named = quote("4:/ui/alarms", safe="")
    await ask(app, "/ui/live", query=f"part={named}", leave_after=2, sent=sent)
    overview, alarms, part = b"".join(sent).split(b"event: ")[1:4]
    assert overview.startswith(b"overview")
    assert alarms.startswith(b"alarms")
    told = json.loads(part.partition(b"data: ")[2])
    assert told["part"] == "4:/ui/alarms"
    assert "disk is not well" in told["html"]
    assert HOSTILE not in told["html"]
    # The page writes how long ago that was: else it would differ with each second.
    assert re.search(r"<time [^>]*></time>", told["html"])
    become(context, "viewer", "stats")
    refused = await ask(app, "/ui/live", query=f"part={named}")
    assert refused.status == 403


async def test_slow_sessions_come_first_as_asked(app: Any, broker: Watched) -> None:
    text = await page(app, "/ui/slow")
    assert {type(each) for each in broker.asked} == {ListSlow, GetTop}
    assert "4\u2009321" in text
    assert "catches up" in text
    assert 'href="/ui/sessions/slow%2F%3Cimg%20src%3Dx%3E"' in text
    assert 'data-copy="perdure top --slow -n 50"' in text
    broker.asked.clear()
    text = await page(app, "/ui/slow", "by=pending")
    assert [(each.sort, each.limit) for each in broker.asked] == [("pending", 50)]
    assert 'data-keep="/ui/slow?by=pending"' in text
    assert (await ask(app, "/ui/slow", query="by=sideways")).status == 400


async def test_a_trace_shows_its_last_events_and_goes_back(app: Any, broker: Watched) -> None:
    broker.count = 250
    text = await page(app, "/ui/traces/ab12")
    numbers = [int(each) for each in re.findall(r'<tr><td class="num">(\d+)<', text)]
    assert numbers == list(range(250, 250 - SHOWN, -1))
    assert "?until=150" in text
    assert 'data-keep="/ui/traces/ab12" data-every="2"' in text
    assert 'data-copy="perdure trace show ab12"' in text
    back = await page(app, "/ui/traces/ab12", "until=50")
    assert "?until=" not in back
    assert "data-keep" not in back  # what was is not looked at again and again
    assert back.count("<code title=") == 50
    assert (await ask(app, "/ui/traces/ab12", query="until=x")).status == 400
    assert (await ask(app, "/ui/traces/nine")).status == 404


async def test_the_last_look_at_a_trace_tells_that_it_has_ended(app: Any, broker: Watched) -> None:
    broker.count, broker.running = 3, False
    last = await page(app, "/ui/traces/ab12", **PART)
    assert "ended; 3 events" in last
    assert "data-keep" not in last


async def test_a_trace_is_downloaded_as_lines(app: Any, broker: Watched) -> None:
    broker.count, broker.kept = 4_500, 2_500
    got = await ask(app, "/ui/traces/ab12/events.jsonl")
    assert got.headers["content-disposition"] == 'attachment; filename="trace-ab12.jsonl"'
    lines = [json.loads(line) for line in got.body.splitlines()]
    assert [line["number"] for line in lines] == list(range(2_001, 4_501))
    assert lines[0]["payload"] == HOSTILE


async def test_who_may_trace(app: Any, context: Any, broker: Watched) -> None:
    assert "Begin a trace" in await page(app, "/ui/traces")
    become(context, "operator")
    text = await page(app, "/ui/traces")
    assert "listens" in text
    assert "Begin a trace" not in text
    assert "/ui/traces/ab12" not in text
    assert (await ask(app, "/ui/traces/ab12")).status == 403
    assert (await ask(app, "/ui/traces/ab12/events.jsonl")).status == 403
    become(context, "viewer")
    assert (await ask(app, "/ui/traces")).status == 403
