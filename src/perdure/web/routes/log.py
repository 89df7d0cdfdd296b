"""``/storage/databases/log``: what the log holds, and its rows. ``pipeline.protocol`` has the
questions that a data source asks; here are also the ones that a person asks with curl."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from perdure.admin.wire import decode_given
from perdure.clock import SystemClock
from perdure.errors import MqttError, StorageUnavailable
from perdure.pipeline.conditions import Narrowing
from perdure.pipeline.log_index import BulkLog
from perdure.pipeline.options import parse_options
from perdure.pipeline.protocol import (
    CURSORS_PATH,
    ITEMS_MAX,
    LOG_PATH,
    ROWS_MIN,
    RUNS_PATH,
    Bound,
    BoundQuery,
    Cursors,
    Description,
    Place,
    RowQuery,
    SliceQuery,
    Slices,
)
from perdure.storage.cursors import PipelineCursor, load_cursors, save_cursor
from perdure.storage.pipeline_runs import PipelineRun, save_report
from perdure.storage.rocksdb.bulk import FilterSets
from perdure.topic.matching import intersects
from perdure.topic.names import validate_topic_filter
from perdure.web.arrow import check_database, stream_rows
from perdure.web.bodies import read_query
from perdure.web.context import Context
from perdure.web.problems import ApiError
from perdure.web.routes.health import json_response
from perdure.web.routing import WebRoute

BODY_BYTES_MAX: Final = 4 * 1024 * 1024
"""A query with ten thousand topic filters is far smaller."""

_LEVELS_MAX: Final = 65_536
_READ_PARAMETERS: Final = frozenset({"columns", "topic", "from", "until", "where"})
_STREAM_PARAMETERS: Final = frozenset({"cursor", "generation", "limit", "view"})

Q = TypeVar("Q", SliceQuery, BoundQuery, RowQuery)
T = TypeVar("T")


def routes(context: Context) -> list[WebRoute]:
    """The routes of this file."""
    handlers = LogHandlers(context)
    table = [
        ("GET", LOG_PATH, handlers.describe),
        ("GET", f"{LOG_PATH}/streams", handlers.streams),
        ("GET", f"{LOG_PATH}/schema", handlers.schema),
        ("POST", f"{LOG_PATH}/slices", handlers.slices),
        ("POST", f"{LOG_PATH}/bound", handlers.bound),
        ("GET", CURSORS_PATH, handlers.cursors),
        ("POST", CURSORS_PATH, handlers.keep_cursor),
        ("POST", RUNS_PATH, handlers.keep_run),
        ("POST", f"{LOG_PATH}/read", handlers.read),
        ("GET", f"{LOG_PATH}/read", handlers.read_plainly),
    ]
    writing = (handlers.keep_cursor, handlers.keep_run)
    return [
        WebRoute(
            method=method,
            path=path,
            endpoint=endpoint,
            operation="storage.read",
            right="operator" if endpoint in writing else "viewer",
            narrows=endpoint not in writing and path != CURSORS_PATH,
        )
        for method, path, endpoint in table
    ]


class LogHandlers:
    """Answers questions about the log.

    Args:
        context: of the process.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    async def describe(self, request: Request) -> Response:
        """Which database, how far it reaches, its generations."""
        return json_response(await self._with_view(_view(request), _description))

    async def streams(self, request: Request) -> Response:
        """The learned structures of a generation, the newest by default."""
        _parameters(request, _STREAM_PARAMETERS)
        number = _number(request, "generation", 0)
        own = _own_filters(request)

        def read(files: BulkLog) -> list[dict[str, Any]]:
            newest = max(info.generation for info in files.generations())
            if number > newest:
                raise ApiError("not_found", f"there is no generation {number}")
            chosen = number or newest
            found = files.layout(chosen).streams()
            return [
                {"generation": chosen, "stream": stream, "pattern": pattern}
                for stream, pattern in found
                if all(any(intersects(pattern, each) for each in filters) for filters in own)
            ]

        found = await self._with_view(_view(request), read)
        return json_response(_page(request, found, "stream"))

    async def schema(self, _request: Request) -> Response:
        """The columns of a row."""
        try:
            from perdure.pipeline.schema import COLUMNS
        except ImportError:
            raise ApiError(
                "arrow_missing",
                "pyarrow is not installed here",
                hint="pip install 'perdure[http,arrow]'",
            ) from None
        items = [
            {"name": column.name, "type": column.spark, "about": column.about} for column in COLUMNS
        ]
        return json_response({"items": items, "next_cursor": None})

    async def slices(self, request: Request) -> Response:
        """A range cut into parts of about equal size."""
        query = await _query(request, SliceQuery)

        def read(files: BulkLog) -> Slices:
            _check_oldest(files, query)
            found = files.slices(
                query.filter_sets,
                query.after_offset,
                query.until_offset,
                rows_max=max(query.rows_max, ROWS_MIN),
            )
            return Slices(tuple(found))

        return json_response(await self._with_view(query.view, read))

    async def bound(self, request: Request) -> Response:
        """Where a micro-batch ends."""
        query = await _query(request, BoundQuery)

        def read(files: BulkLog) -> Bound:
            _check_oldest(files, query)
            rows_max = max(query.rows_max, 1)
            return Bound(
                files.bound(query.filter_sets, query.after_offset, query.until_offset, rows_max)
            )

        return json_response(await self._with_view(query.view, read))

    async def cursors(self, _request: Request) -> Response:
        """How far pipelines have read."""

        def read() -> Cursors:
            found, broken = load_cursors(Path(self._context.settings.data))
            return Cursors(tuple(found), tuple(broken))

        return json_response(await self._context.in_thread(read))

    async def keep_cursor(self, request: Request) -> Response:
        """Keep how far a pipeline has read, for ``retention.keep_for``."""
        cursor = await _decoded(request, PipelineCursor)

        def keep(files: BulkLog) -> PipelineCursor:
            data = Path(self._context.settings.data)
            check_database(files, cursor.database, data)
            newest = files.generations()[-1].since_offset - 1
            last = files.newest()
            if cursor.offset > max(newest, last.offset if last else 0):
                raise ApiError("bad_request", "the log does not reach as far as this cursor")
            save_cursor(data, cursor)
            return cursor

        return json_response(await self._with_view("", keep))

    async def keep_run(self, request: Request) -> Response:
        """Keep how the jobs of a pipeline are going."""
        run = await _decoded(request, PipelineRun)

        def keep() -> PipelineRun:
            save_report(Path(self._context.settings.data), run)
            return run

        return json_response(await self._context.in_thread(keep))

    async def read(self, request: Request) -> Response:
        """The rows of some slices, as an Arrow IPC stream."""
        return await stream_rows(self._context, await _query(request, RowQuery))

    async def read_plainly(self, request: Request) -> Response:
        """The rows of a topic filter and a range of time: for ``curl`` and for notebooks."""
        given = _parameters(request, _READ_PARAMETERS)
        columns = given.pop("columns", "topic,payload,client_id,offset,published_at,qos")
        now_us = SystemClock().now_us()
        options = parse_options({**given, "path": self._context.settings.data}, now_us)
        names = tuple(name.strip() for name in columns.split(","))
        filter_sets = options.filter_sets + _own_filters(request)

        def plan_all(files: BulkLog) -> RowQuery:
            newest = files.newest()
            until = min(options.reach(newest.offset), newest.offset) if newest else 0
            bounds = Narrowing(after_offset=options.after_offset, until_offset=until)
            slices = (
                files.slices(
                    filter_sets,
                    bounds.after_offset,
                    bounds.until_offset,
                    rows_max=options.rows_per_partition,
                )
                if bounds.after_offset < bounds.until_offset
                else []
            )
            return RowQuery(
                filter_sets=filter_sets,
                slices=tuple(slices),
                columns=names,
                published_from=options.published_from,
                published_until=options.published_until,
                where=options.where,
            )

        return await stream_rows(self._context, await self._with_view("", plan_all))

    async def _with_view(self, name: str, work: Callable[[BulkLog], T]) -> T:
        def run() -> T:
            with self._context.views.use(name) as files:
                return work(files)

        return await self._context.in_thread(run)


def _description(files: BulkLog) -> Description:
    newest = files.newest()
    return Description(
        files.database_id,
        None if newest is None else Place(newest.generation, newest.offset),
        tuple(files.generations()),
    )


def _check_oldest(files: BulkLog, query: SliceQuery | BoundQuery) -> None:
    """Make sure that nothing of a range was dropped since its reader first saw the log.

    Raises:
        StorageUnavailable: it was.
    """
    oldest = files.generations()[0]
    if 0 < query.oldest < oldest.generation and query.after_offset + 1 < oldest.since_offset:
        raise StorageUnavailable(
            f"generations {query.oldest} to {oldest.generation - 1} were dropped while they were "
            "to be read",
            hint="read again; retention.keep_for has the log wait for an archive",
        )


def _page(request: Request, items: list[dict[str, Any]], key: str) -> Mapping[str, Any]:
    """Items after the cursor, which is the key of the last one before; keys ascend."""
    limit = _number(request, "limit", 100)
    if not 1 <= limit <= ITEMS_MAX:
        raise ApiError("bad_request", f"limit: integer, 1 to {ITEMS_MAX}")
    after = _number(request, "cursor", -1)
    left = [item for item in items if item[key] > after]
    page = left[:limit]
    following = str(page[-1][key]) if len(left) > limit else None
    return {"items": page, "next_cursor": following, "estimated_total": len(items)}


def _parameters(request: Request, known: frozenset[str]) -> dict[str, str]:
    """The query.

    Raises:
        ApiError: a parameter is not known, or there twice.
    """
    given = read_query(request)
    unknown = given.keys() - known
    if unknown:
        raise ApiError(
            "bad_request",
            f"unknown parameter {min(unknown)[:100]!r}",
            hint=f"there are {', '.join(sorted(known))}",
        )
    return given


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise ApiError("bad_request", f"{name}: expected a whole number, got {text!r}")
    return int(text)


def _view(request: Request) -> str:
    return request.query_params.get("view", "")[:64]


async def _query(request: Request, kind: type[Q]) -> Q:
    """The query in the body of a request, checked."""
    query = await _decoded(request, kind)
    _check_filters(query.filter_sets)
    own = _own_filters(request)
    return msgspec.structs.replace(query, filter_sets=query.filter_sets + own) if own else query


def _own_filters(request: Request) -> FilterSets:
    """What a topic must match besides, for whoever asks."""
    own = request.state.principal.topic_filters
    return (tuple(own),) if own else ()


async def _decoded(request: Request, kind: type[T]) -> T:
    """The body of a request."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > BODY_BYTES_MAX:
            raise ApiError("too_large", f"a query has at most {BODY_BYTES_MAX} bytes")
    try:
        return decode_given(bytes(body), kind)
    except ValueError as error:
        raise ApiError("bad_request", f"the body is not a query: {error}") from error


def _check_filters(filter_sets: FilterSets) -> None:
    for filters in filter_sets:
        for topic_filter in filters:
            try:
                validate_topic_filter(topic_filter, levels_max=_LEVELS_MAX)
            except MqttError as error:
                raise ApiError("bad_request", f"topic {topic_filter!r}: {error}") from error
