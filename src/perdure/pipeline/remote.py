"""Reads the log of a broker on another machine, over HTTP, with the standard library.

A broker that goes away is waited for: a stream of rows that was cut off goes on behind the last
batch that arrived. What would not get better by waiting is told at once: a wrong address when a
query begins, a wrong token, something that is no Perdure.

Invariant: each wanted row of a part is given once, or an error is raised.
"""

from __future__ import annotations

import http.client
import ssl
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar, final
from urllib.parse import quote, urlsplit

import msgspec

from perdure.errors import (
    ConfigError,
    FormatTooNew,
    PerdureError,
    StorageCorrupt,
    StorageUnavailable,
)
from perdure.pipeline.address import Remote
from perdure.pipeline.patience import Patience, Unreachable
from perdure.pipeline.protocol import (
    CURSORS_PATH,
    ITEMS_MAX,
    LOG_PATH,
    RUNS_PATH,
    Bound,
    BoundQuery,
    Cursors,
    Description,
    Problem,
    RowQuery,
    SliceQuery,
    Slices,
    Streams,
)
from perdure.storage.contract import GenerationInfo
from perdure.storage.cursors import PipelineCursor
from perdure.storage.pipeline_runs import PipelineRun
from perdure.storage.rocksdb.bulk import FilterSets, Position
from perdure.storage.rocksdb.bulk_slices import Slice

SOCKET_TIMEOUT_S: Final = 60.0
"""A broker sends a page of a read far more often."""

_ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
_AWAY: Final = frozenset({502, 503, 504})
_ERRORS: Final[dict[str, type[PerdureError]]] = {
    error.code: error for error in (ConfigError, StorageUnavailable, StorageCorrupt, FormatTooNew)
}

T = TypeVar("T")


@final
class RemoteLog:
    """The log of a broker as it is now (a ``LogIndex``).

    Args:
        remote: where it is.
        patience: for a broker that is away.

    Raises:
        StorageUnavailable: it cannot be reached.
        ConfigError: it refuses the token, or is no broker.
    """

    def __init__(self, remote: Remote, patience: Patience | None = None) -> None:
        self.remote = remote
        self._patience = patience or Patience(0)
        self.view = uuid.uuid4().hex
        self._description = self._get(Description, f"{LOG_PATH}?view={quote(self.view)}")

    @property
    def database_id(self) -> str:
        """See ``LogFiles``."""
        return self._description.database_id

    def generations(self) -> Sequence[GenerationInfo]:
        """See ``LogFiles``."""
        return self._description.generations

    def newest(self) -> Position | None:
        """See ``LogFiles``."""
        found = self._description.newest
        return None if found is None else Position(found.generation, found.offset)

    def slices(
        self, filter_sets: FilterSets, after_offset: int, until_offset: int, *, rows_max: int
    ) -> list[Slice]:
        """See ``LogFiles``."""
        query = SliceQuery(
            view=self.view,
            filter_sets=filter_sets,
            oldest=self.generations()[0].generation,
            after_offset=after_offset,
            until_offset=until_offset,
            rows_max=rows_max,
        )
        return list(self._get(Slices, f"{LOG_PATH}/slices", query).slices)

    def bound(self, filter_sets: FilterSets, after: int, until: int, rows_max: int) -> int:
        """See ``LogFiles``."""
        query = BoundQuery(
            view=self.view,
            filter_sets=filter_sets,
            oldest=self.generations()[0].generation,
            after_offset=after,
            until_offset=until,
            rows_max=rows_max,
        )
        return self._get(Bound, f"{LOG_PATH}/bound", query).offset

    def patterns(self, generation: int) -> list[str]:
        """See ``LogFiles``."""
        found: list[str] = []
        path = f"{LOG_PATH}/streams?generation={generation}&limit={ITEMS_MAX}"
        path += f"&view={quote(self.view)}"
        page = self._get(Streams, path)
        while True:
            found += [each.pattern for each in page.items]
            if page.next_cursor is None:
                return found
            page = self._get(Streams, f"{path}&cursor={quote(page.next_cursor)}")

    def close(self) -> None:
        """Nothing is held here; the broker forgets a view that nobody asks for."""

    def _get(self, kind: type[T], path: str, query: msgspec.Struct | None = None) -> T:
        while True:
            try:
                with _HttpExchange(self.remote, path, query) as response:
                    body = _body(self.remote, response)
            except Unreachable as away:
                self._patience.wait(away)
                continue
            self._patience.reset()
            try:
                return msgspec.json.decode(body, type=kind)
            except ValueError:
                raise _not_perdure(self.remote) from None


def open_remote(remote: Remote, *, patient: bool) -> RemoteLog:
    """The log of the first address that answers; what is asked of this view goes there.

    If none does and it is ``patient``, they are waited for. Raises as ``RemoteLog``.
    """
    patience = Patience(remote.wait_s if patient else 0)
    if not remote.others:
        return RemoteLog(remote, patience)
    while True:
        for each in remote.each:
            try:
                return RemoteLog(each)
            except StorageUnavailable as error:
                away = Unreachable(error.message)
        patience.wait(away)


def send_cursor(remote: Remote, cursor: PipelineCursor) -> None:
    """Have a broker keep how far a pipeline has read; of several nodes each, since each has a
    retention of its own.

    Raises:
        StorageUnavailable: none is there, or they are of an older release.
        ConfigError: it refuses.
    """
    _send(remote, CURSORS_PATH, cursor)


def send_run(remote: Remote, run: PipelineRun) -> None:
    """Tell a broker, or each of several nodes, how a pipeline is going.

    Raises:
        StorageUnavailable, ConfigError: see ``send_cursor``.
    """
    _send(remote, RUNS_PATH, run)


def _send(remote: Remote, path: str, record: msgspec.Struct) -> None:
    told, problem = 0, ""
    for each in remote.each:
        try:
            with _HttpExchange(each, path, record) as response:
                _body(each, response)
            told += 1
        except Unreachable as away:
            problem = str(away)
    if not told:
        raise StorageUnavailable(problem)


def fetch_cursors(remote: Remote) -> Cursors:
    """How far pipelines have read a broker's log.

    Raises:
        StorageUnavailable, ConfigError: see ``send_cursor``.
    """
    for each in remote.each:
        try:
            with _HttpExchange(each, CURSORS_PATH, None) as response:
                return msgspec.json.decode(_body(each, response), type=Cursors)
        except Unreachable as away:
            problem = str(away)
        except ValueError:
            raise _not_perdure(each) from None
    raise StorageUnavailable(problem)


def read_rows(
    remote: Remote, query: RowQuery, *, patience: Patience | None = None
) -> Iterator[Any]:
    """The record batches of some slices.

    Raises:
        StorageUnavailable: the broker was away too long, or the rows are gone.
        ConfigError: it refuses the token or the query.
    """
    from perdure.pipeline.ipc import RemoteProblem, StreamCut, read_stream

    patience = patience or Patience(remote.wait_s)
    position = query.position
    while True:
        try:
            asked = msgspec.structs.replace(query, position=position)
            with _HttpExchange(remote, f"{LOG_PATH}/read", asked) as response:
                for position, batch in read_stream(response):  # noqa: B007 - where to go on
                    patience.reset()
                    if batch.num_rows:
                        yield batch
            return
        except RemoteProblem as failure:
            raise _error(remote, failure.problem) from None
        except Unreachable as away:
            patience.wait(away)
        except (StreamCut, OSError, http.client.HTTPException) as error:
            patience.wait(Unreachable(f"{remote.url} ended its answer early: {_reason(error)}"))


@final
class _HttpExchange:
    """One request and the response to it, while it is read.

    Raises:
        Unreachable: no broker answers now.
        PerdureError: it refuses.
    """

    def __init__(self, remote: Remote, path: str, query: msgspec.Struct | None) -> None:
        self._remote = remote
        self._path = urlsplit(remote.url).path + path
        self._body = None if query is None else msgspec.json.encode(query)
        self._connection = _connection(remote)

    def __enter__(self) -> http.client.HTTPResponse:
        try:
            response = self._send()
        except BaseException:
            self._connection.close()
            raise
        return response

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def _send(self) -> http.client.HTTPResponse:
        remote = self._remote
        headers = {"Content-Type": "application/json"} if self._body is not None else {}
        if remote.token:
            headers["Authorization"] = f"Bearer {remote.token}"
        method = "GET" if self._body is None else "POST"
        try:
            self._connection.request(method, self._path, body=self._body, headers=headers)
            response = self._connection.getresponse()
        except ssl.SSLError as error:
            raise ConfigError(
                f"{remote.url} does not speak TLS that can be trusted: {error.reason}",
                path="url",
                hint="name its certificate's authority with the option caFile; "
                "http:// is without TLS",
            ) from error
        except http.client.RemoteDisconnected as error:
            raise Unreachable(f"{remote.url} closed the connection without an answer") from error
        except OSError as error:
            raise Unreachable(f"cannot reach {remote.url}: {_reason(error)}") from error
        except http.client.HTTPException as error:
            raise _not_perdure(remote) from error
        if response.status != http.client.OK:
            raise _refusal(remote, response)
        return response


def _connection(remote: Remote) -> http.client.HTTPConnection:
    parts = urlsplit(remote.url)
    assert parts.hostname is not None
    if parts.scheme == "http":
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=SOCKET_TIMEOUT_S)
    try:
        context = ssl.create_default_context(cafile=remote.ca_file or None)
    except OSError as error:
        raise ConfigError(f"caFile {remote.ca_file}: {_reason(error)}", path="caFile") from error
    return http.client.HTTPSConnection(
        parts.hostname, parts.port, timeout=SOCKET_TIMEOUT_S, context=context
    )


def _body(remote: Remote, response: http.client.HTTPResponse) -> bytes:
    if response.length is None and not response.chunked:
        # The end of the connection would be the end of the body: here also where it was cut
        # within the headers.
        raise Unreachable(f"{remote.url} ended its answer early: no length")
    if (response.length or 0) > _ANSWER_BYTES_MAX:
        raise _not_perdure(remote)
    try:
        # With a number, a body that was cut would be returned as if it were whole.
        return response.read()
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"{remote.url} ended its answer early: {_reason(error)}") from error


def _refusal(remote: Remote, response: http.client.HTTPResponse) -> Exception:
    """What a status other than 200 means."""
    try:
        problem = msgspec.json.decode(_body(remote, response), type=Problem)
    except ValueError:
        if response.status in _AWAY:
            # Too many connections, or a proxy before a broker that is being restarted.
            return Unreachable(f"{remote.url} is not available now ({response.status})")
        return _not_perdure(remote)
    if response.status == http.client.SERVICE_UNAVAILABLE:
        return Unreachable(f"{remote.url}: {problem.message}", is_busy=problem.code == "busy")
    return _error(remote, problem)


def _error(remote: Remote, problem: Problem) -> PerdureError:
    """A problem that the broker told, as the error that it is here."""
    message, hint = problem.message, problem.hint
    if problem.code == "unauthorized":
        message = f"{remote.url} {'refused the token' if remote.token else 'wants a token'}"
        hint = "option token or tokenFile, or the variable PERDURE_TOKEN; see http.token_file"
        return ConfigError(message, path="token", hint=hint)
    kind = _ERRORS.get(problem.code, ConfigError)
    return kind(f"{remote.url}: {message}", hint=hint)


def _not_perdure(remote: Remote) -> ConfigError:
    return ConfigError(
        f"{remote.url} is not the HTTP interface of a Perdure broker",
        path="url",
        hint="http.bind says where it is, by default nowhere; its default port is 18083",
    )


def _reason(error: Exception) -> str:
    """What went wrong, in a few words."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
