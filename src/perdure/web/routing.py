"""Routes, found by the path as it was sent.

The raw path is cut at its slashes and each segment is decoded by itself, so that a client id or a
topic that holds a slash stays one segment. Invariant: the route that answers is the one whose right
was checked; the path of a request is read once, here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final, TypeAlias, final
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from perdure.admin.rights import Role
from perdure.web.problems import ApiError

SEGMENTS_MAX: Final = 32
"""Segments of a path; no route has so many."""

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


@final
class WebRoute(msgspec.Struct, frozen=True, kw_only=True):
    """One route.

    Attributes:
        method: of the request; HEAD is answered by GET.
        path: whole path; ``{name}`` is a segment of any content, and
            ``{name}:verb`` one that ends so.
        endpoint: answers; path parameters are in ``request.path_params``.
        right: the least role that may; None = everybody, without credentials.
        operation: name for scopes, ``resource.verb``.
        on_unauthorized: where a browser is sent that has no credentials; empty = 401.
        broker_decides: the administration service judges the topics of a request, too.
        narrows: who may have topics of some filters only is told of these alone.
        is_about_asker: it tells of nothing but who asks, so neither scopes nor filters narrow it.
    """

    method: str
    path: str
    endpoint: Endpoint
    right: Role | None = "viewer"
    operation: str = ""
    on_unauthorized: str = ""
    broker_decides: bool = False
    narrows: bool = False
    is_about_asker: bool = False


@final
class Found(msgspec.Struct, frozen=True):
    """A route for a request, and what the path holds."""

    route: WebRoute
    params: dict[str, str]


@final
class _Level:
    __slots__ = ("fixed", "name", "routes", "variable", "verbs")

    def __init__(self) -> None:
        self.fixed: dict[str, _Level] = {}
        self.variable: _Level | None = None
        self.verbs: dict[str, _Level] = {}
        self.name = ""
        self.routes: dict[str, WebRoute] = {}


@final
class RouteTable:
    """All routes of a process.

    Args:
        routes: of which no two have the same method and path.
    """

    def __init__(self, routes: Iterable[WebRoute]) -> None:
        self._root = _Level()
        self.paths: set[str] = set()
        for route in routes:
            self._add(route)

    def find(self, method: str, raw_path: bytes) -> Found | None:
        """The route of a request; None = there is nothing at its path.

        Args:
            method: of the request.
            raw_path: as it was sent, without the query.

        Raises:
            ApiError: there is something, and not with this method.
        """
        segments = _segments(raw_path)
        if segments is None:
            return None
        wanted = "GET" if method == "HEAD" else method
        allowed: set[str] = set()
        for routes, params in _reached(self._root, segments, 0):
            if wanted in routes:
                return Found(routes[wanted], params)
            allowed.update(routes)
        if not allowed:
            return None
        hint = f"it takes {', '.join(sorted(allowed))}"
        if "GET" in allowed:
            allowed.add("HEAD")
        raise ApiError(
            "method_not_allowed", "not with this method", hint=hint, allow=tuple(sorted(allowed))
        )

    def _add(self, route: WebRoute) -> None:
        level = self._root
        for segment in route.path[1:].split("/"):
            if segment.startswith("{"):
                name, _, verb = segment[1:].partition("}")
                assert level.name in ("", name), f"{route.path}: {level.name} elsewhere"
                level.name = name
                if verb:
                    level = level.verbs.setdefault(verb[1:], _Level())
                else:
                    level.variable = level.variable or _Level()
                    level = level.variable
            else:
                level = level.fixed.setdefault(segment, _Level())
        assert route.method not in level.routes, f"{route.method} {route.path} is there twice"
        level.routes[route.method] = route
        self.paths.add(route.path)


def _reached(
    level: _Level, segments: list[str], index: int
) -> Iterator[tuple[dict[str, WebRoute], dict[str, str]]]:
    """Routes at a path, those whose segments are said before those that take any."""
    if index == len(segments):
        if level.routes:
            yield level.routes, {}
        return
    segment = segments[index]
    following = level.fixed.get(segment)
    if following is not None:
        yield from _reached(following, segments, index + 1)
    value, _, verb = segment.rpartition(":")
    for part, below in ((value, level.verbs.get(verb)), (segment, level.variable)):
        if part and below is not None:
            for routes, params in _reached(below, segments, index + 1):
                yield routes, {level.name: part, **params}


def _segments(raw_path: bytes) -> list[str] | None:
    """The decoded segments of a path; None = it is no path, or has too many."""
    if not raw_path.startswith(b"/") or raw_path.count(b"/") > SEGMENTS_MAX:
        return None
    try:
        return [unquote_to_bytes(each).decode() for each in raw_path[1:].split(b"/")]
    except UnicodeDecodeError:
        return None
