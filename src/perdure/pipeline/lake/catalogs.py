"""Iceberg catalogs of an archive: beside its tables, described in the configuration, or named.

Whatever a catalog or a store raises gets one of our names here; their libraries' errors and the
settings in them leave this module redacted.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NotInstalledError,
    OAuthError,
    RESTError,
    UnauthorizedError,
)

from perdure.errors import ConfigError, StorageError, StorageUnavailable
from perdure.pipeline.lake.lake import Lake
from perdure.pipeline.lake.stores import Store

CONNECT_TIMEOUT_S: Final = 10
ANSWER_TIMEOUT_S: Final = 60
"""Times for a REST catalog; pyiceberg itself waits for ever."""

_REFUSED: Final = (ForbiddenError, OAuthError, UnauthorizedError, AuthorizationExpiredError)
_OF_SERVERS: Final = ("sqlalchemy.", "botocore.", "thrift.", "requests.")
_F = TypeVar("_F", bound=Callable[..., Any])


def local_catalog(root: Path) -> Catalog:
    """The catalog in an archive's own directory, made if it is not there.

    The directory is not made: who reads an archive that is away leaves nothing in its place.
    """
    root = root.resolve()
    return load_catalog(
        "perdure",
        type="sql",
        uri=f"sqlite:///{root / 'catalog.db'}",
        warehouse=root.as_uri(),
    )


def catalog_of(lake: Lake) -> Catalog:
    """The catalog that has the tables of a lake.

    Raises:
        ConfigError: it cannot be used as it is configured.
        StorageUnavailable: it cannot be reached.
    """
    if not lake.catalog:
        if not lake.is_local:
            raise ConfigError(
                f"{lake.place}: the catalog of its tables is not configured",
                path="pipeline.tables.catalog_type",
                hint="the archive's own settings: the section pipeline.tables",
            )
        with catalog_errors(lake.store, f"catalog {lake.catalog}"):
            return local_catalog(Path(lake.place))
    properties = dict(lake.properties)
    if "uri" in properties or "type" in properties:
        if not lake.is_local and properties.get("type") in {"sql", "glue", "dynamodb"}:
            properties.setdefault("warehouse", lake.place)
        elif lake.is_local and properties.get("type") == "sql":
            properties.setdefault("warehouse", Path(lake.place).as_uri())
    store = Store(tuple(properties.items()))
    with catalog_errors(store, f"catalog {lake.catalog}"):
        try:
            catalog = load_catalog(lake.catalog, **properties)
        except (ValueError, NotInstalledError) as error:
            hint = "pipeline.tables.catalog_type and catalog_uri describe one, or ~/.pyiceberg.yaml"
            if isinstance(error, NotInstalledError):
                hint = "pip install 'perdure[lake]'"
            raise ConfigError(
                store.redact(f"catalog {lake.catalog}: {error}"),
                path="pipeline.tables.catalog",
                hint=hint,
            ) from None
    _limit_waiting(catalog)
    return catalog


@contextlib.contextmanager
def catalog_errors(store: Store, what: str) -> Iterator[None]:
    """Name what a catalog or a store says as we do.

    Raises:
        StorageUnavailable: it is not there now, or refuses.
    """
    try:
        yield
    except (StorageError, ConfigError, CommitFailedException, FileNotFoundError):
        raise
    except BadRequestError as error:
        raise ConfigError(store.redact(f"{what}: {_line(error)}"), path="pipeline.tables") from None
    except (OSError, RESTError) as error:
        hint = ""
        if isinstance(error, _REFUSED):
            hint = "credentials are in pipeline.tables.properties: token, credential, s3.*"
        raise StorageUnavailable(store.redact(f"{what}: {_line(error)}"), hint=hint) from None
    except Exception as error:
        # Clients of servers that need not be installed have roots of their own.
        if not type(error).__module__.startswith(_OF_SERVERS):
            raise
        raise StorageUnavailable(store.redact(f"{what}: {_line(error)}")) from None


def guarded(method: _F) -> _F:
    """A method of a sink, with errors of catalog and store named as ours.

    The sink has ``lake``; the first argument of the method is a table.
    """

    @functools.wraps(method)
    def named(self: Any, table: str, *args: Any, **kwargs: Any) -> Any:
        with catalog_errors(self.lake.store, f"table {table}"):
            return method(self, table, *args, **kwargs)

    return named  # type: ignore[return-value]


def _line(error: BaseException) -> str:
    """The first line of what a library says; the rest is SQL or a trace."""
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__


def _limit_waiting(catalog: Catalog) -> None:
    """Have a REST catalog that takes a request and never answers end in an error."""
    session = getattr(catalog, "_session", None)
    if session is None or not hasattr(session, "request"):
        return
    plain = session.request

    def request(*given: Any, **named: Any) -> Any:
        named["timeout"] = named.get("timeout") or (CONNECT_TIMEOUT_S, ANSWER_TIMEOUT_S)
        return plain(*given, **named)

    session.request = request
