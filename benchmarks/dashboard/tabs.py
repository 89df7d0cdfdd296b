"""Five open tabs, in a process of their own.

``python -m benchmarks.dashboard.tabs URL SETUP PREFIX CLIENT``; see ``serve``.
Reads a line for each thing to do: ``chromium`` or ``replayed`` opens the tabs, ``page NAME`` one
tab alone, ``close`` closes them, the end of the file ends it; each is answered with a line when it
is done. Somebody works in the tabs: one leafs through all sessions and one types a filter, a step
every two seconds. Beside them ``/metrics`` is scraped every two seconds and a program listens to
``/live``.

Whoever looks at a dashboard does so on a machine of their own. Here they share the broker's, so
this process and the browser take of it only what nobody else wants (``SCHED_IDLE``): what is left
to measure is what the broker and its HTTP process spend for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator
from typing import Any, Final, final
from urllib.parse import quote

import httpx

STEP_S: Final = 2.0
PASSWORD: Final = "correct horse battery"
COOKIE: Final = "perdure_login"
TIMEOUT_S: Final = 60.0
PAGES: Final = (
    "overview",
    "session",
    "sleeper",
    *("sessions", "subscriptions", "shared", "alarms", "slow", "traces", "client", "storage"),
    *("messages", "retained", "pipelines", "forwarders", "applications", "filters", "access"),
    *("audit", "clients", "tokens", "bans", "nodes", "config"),
)
"""Those that ``page`` opens; ``session`` is connected, ``sleeper`` is not."""

_NEXT: Final = re.compile(r'rel="next" href="([^"]+)"')
_PART: Final = {"HX-Request": "true"}


def paths(client_id: str) -> dict[str, str]:
    """Where the tabs are."""
    return {
        "overview": "/ui/",
        "leaf": "/ui/sessions?limit=100",
        "filter": "/ui/sessions?limit=100",
        "busiest": "/ui/slow?by=pending",
        "session": f"/ui/sessions/{quote(client_id, safe='')}",
    }


def page_path(name: str, prefix: str, client_id: str) -> str:
    """Where a page of ``PAGES`` is."""
    if name in ("session", "sleeper"):
        wanted = client_id if name == "session" else f"{prefix}00000"
        return f"/ui/sessions/{quote(wanted, safe='')}"
    return "/ui/" if name == "overview" else f"/ui/{name}"


@final
class Tabs:
    """The requests of a browser, without one; and what programs ask meanwhile.

    Args:
        client: logged in.
        prefix: of the client ids that a filter is typed for.
        client_id: whose page is open.
    """

    def __init__(self, client: httpx.AsyncClient, prefix: str, client_id: str) -> None:
        self._client = client
        self._prefix = prefix
        self._paths = paths(client_id)

    async def scrape(self) -> None:
        """As Prometheus does, more often."""
        while True:
            await self._get("/api/v1/metrics")
            await asyncio.sleep(STEP_S)

    async def listen(self) -> None:
        """A program that listens."""
        async for _ in self._events("/api/v1/live"):
            pass

    async def overview(self) -> None:
        """Charts are drawn from the history once, and from the stream then."""
        await self._get(self._paths["overview"])
        await self._get("/ui/history")
        async for _ in self._events("/ui/live"):
            pass

    async def leaf(self) -> None:
        """A new document for each page, and so a new stream."""
        path = self._paths["leaf"]
        while True:
            text = await self._get(path)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STEP_S):
                    async for _ in self._events("/ui/live"):
                        pass
            following = _NEXT.search(text)
            path = following[1].replace("&amp;", "&") if following else self._paths["leaf"]

    async def filter(self) -> None:
        """Rows alone are replaced."""
        await self._get(self._paths["filter"])
        number = 0
        async for _ in self._events("/ui/live"):
            number += 1
            wanted = quote(typed(self._prefix, number))
            await self._get(f"/ui/sessions?client_id={wanted}&limit=100", is_part=True)

    async def busiest(self) -> None:
        """The rows come in the stream."""
        await self._keep(self._paths["busiest"])

    async def session(self) -> None:
        """So do the delivery panel and what is held."""
        path = self._paths["session"]
        await self._keep(path, f"{path}/held")

    async def _keep(self, path: str, *others: str) -> None:
        """A page with parts that are kept up to date: itself, and others."""
        await self._get(path)
        named = "&".join(f"part={quote(f'4:{part}', safe='')}" for part in (path, *others))
        async for _ in self._events(f"/ui/live?{named}"):
            pass

    async def _get(self, path: str, *, is_part: bool = False) -> str:
        answer = await self._client.get(path, headers=_PART if is_part else {})
        answer.raise_for_status()
        return answer.text

    async def _events(self, path: str) -> AsyncIterator[str]:
        headers = {"Accept": "text/event-stream"}
        async with self._client.stream("GET", path, headers=headers) as stream:
            stream.raise_for_status()
            async for line in stream.aiter_lines():
                if line.startswith("event: overview"):
                    yield line


def typed(prefix: str, number: int) -> str:
    """What somebody looks for."""
    return f"{prefix}{number % 100:02}"


@contextlib.asynccontextmanager
async def replayed(tabs: Tabs) -> AsyncIterator[None]:
    """The tabs without a browser."""
    names = ("overview", "leaf", "filter", "busiest", "session")
    async with _all(*(getattr(tabs, name)() for name in names)):
        yield


@contextlib.asynccontextmanager
async def in_chromium(
    browser: Any, client: httpx.AsyncClient, prefix: str, client_id: str
) -> AsyncIterator[None]:
    """The tabs in a browser, all of them visible."""
    base = str(client.base_url)
    context = await browser.new_context(viewport={"width": 1280, "height": 900})
    cookie = {"name": COOKIE, "value": client.cookies[COOKIE], "url": base}
    await context.add_cookies([cookie])
    pages = {}
    for name, path in paths(client_id).items():
        pages[name] = await context.new_page()
        await pages[name].goto(f"{base}{path}")
        await pages[name].locator("#pulse[data-state=live]").wait_for()

    async def leaf() -> None:
        while True:
            await asyncio.sleep(STEP_S)
            following = pages["leaf"].locator("a[rel=next]")
            if await following.count():
                await following.click()
            else:
                await pages["leaf"].goto(f"{base}{paths(client_id)['leaf']}")

    async def fill() -> None:
        number = 0
        while True:
            await asyncio.sleep(STEP_S)
            number += 1
            await pages["filter"].get_by_label("Client id", exact=True).fill(typed(prefix, number))

    async with _all(leaf(), fill()):
        yield
    await context.close()


@contextlib.asynccontextmanager
async def one_page(browser: Any, client: httpx.AsyncClient, path: str) -> AsyncIterator[None]:
    """One tab, which nobody touches."""
    base = str(client.base_url)
    context = await browser.new_context(viewport={"width": 1280, "height": 900})
    await context.add_cookies([{"name": COOKIE, "value": client.cookies[COOKIE], "url": base}])
    page = await context.new_page()
    await page.goto(f"{base}{path}")
    await page.locator("#pulse[data-state=live]").wait_for()
    yield
    await context.close()


@contextlib.asynccontextmanager
async def _all(*works: Any) -> AsyncIterator[None]:
    """Work that goes on meanwhile; one that fails ends everything."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in works]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


async def log_in(url: str, setup: str) -> httpx.AsyncClient:
    """A client with the first administrator's login."""
    client = httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S)
    token = httpx.URL(setup).params["token"]
    fields = {"token": token, "name": "bench", "password": PASSWORD, "again": PASSWORD}
    answer = await client.post("/ui/setup", data=fields)
    assert answer.status_code == httpx.codes.SEE_OTHER, answer.text
    return client


def step_aside() -> None:
    """Take no core that another process wants."""
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


async def serve(url: str, setup: str, prefix: str, client_id: str) -> None:
    """Do what the lines say.

    Args:
        url: of the dashboard.
        setup: the link that makes the first administrator.
        prefix: of the client ids that a filter is typed for.
        client_id: whose page is open.
    """
    from playwright.async_api import async_playwright

    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    client = await log_in(url, setup)
    tabs = Tabs(client, prefix, client_id)
    program = shutil.which("chromium")
    async with async_playwright() as running, contextlib.AsyncExitStack() as whole:
        browser = None
        opened = await whole.enter_async_context(contextlib.AsyncExitStack())
        print("ready", flush=True)
        while line := (await reader.readline()).decode().strip():
            if line == "close":
                await opened.aclose()
                print("done", flush=True)
                continue
            if line != "replayed":
                browser = browser or await running.chromium.launch(
                    executable_path=program, args=["--no-sandbox"]
                )
            what, _, name = line.partition(" ")
            if what == "page":
                path = page_path(name, prefix, client_id)
                await opened.enter_async_context(one_page(browser, client, path))
            else:
                await opened.enter_async_context(_all(tabs.scrape(), tabs.listen()))
                made = (
                    in_chromium(browser, client, prefix, client_id)
                    if what == "chromium"
                    else replayed(tabs)
                )
                await opened.enter_async_context(made)
            print("done", flush=True)


if __name__ == "__main__":
    step_aside()
    asyncio.run(serve(*sys.argv[1:]))
