"""asyncpg's exceptions end here: what the rest of Perdure sees is its own tree."""

from __future__ import annotations

from typing import Final

import asyncpg

from perdure.errors import (
    ConfigError,
    PerdureError,
    StorageConflict,
    StorageError,
    StorageFull,
    StorageTimeout,
    StorageUnavailable,
    UsageError,
)

_LOST: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    # A connection that the server has given up while it was idle, and whose end is not seen yet.
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
RAISED: Final = (asyncpg.PostgresError, *_LOST)
"""What a call of asyncpg raises when the server, the network or the data are to blame."""

SERIAL_NOT_FOLLOWING: Final = "PD001"
"""SQLSTATE of our own (migrations): a given serial is not above the last one."""

_REFUSED: Final = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InvalidSchemaNameError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.ClientConfigurationError,
)
_FULL: Final = (asyncpg.DiskFullError,)
_CONFLICT: Final = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
_TIMEOUT: Final = (asyncpg.QueryCanceledError, asyncpg.LockNotAvailableError, TimeoutError)
_UNAVAILABLE: Final = (
    *_LOST,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    # After a failover the server that we talk to may have become a standby.
    asyncpg.ReadOnlySQLTransactionError,
)


def is_connection_lost(error: BaseException) -> bool:
    """Whether the connection is of no more use."""
    # QueryCanceledError is an intervention too, but one that the connection survives.
    ended = (asyncpg.AdminShutdownError, asyncpg.CrashShutdownError, asyncpg.CannotConnectNowError)
    return isinstance(error, _LOST + ended)


def translate(error: BaseException) -> PerdureError:
    """The error to raise for one of ``RAISED``."""
    text = str(error) or type(error).__name__
    if getattr(error, "sqlstate", None) == SERIAL_NOT_FOLLOWING:
        return UsageError(text)
    # ClientConfigurationError is an InterfaceError, so what was refused comes first.
    if isinstance(error, _REFUSED):
        return ConfigError(f"PostgreSQL: {text}", hint="check the URL, its user and its rights")
    if isinstance(error, _FULL):
        return StorageFull(f"PostgreSQL: {text}")
    if isinstance(error, _CONFLICT):
        return StorageConflict(f"PostgreSQL: {text}")
    if isinstance(error, _TIMEOUT):
        return StorageTimeout(f"PostgreSQL: {text}")
    if isinstance(error, _UNAVAILABLE):
        return StorageUnavailable(f"PostgreSQL: {text}")
    return StorageError(f"PostgreSQL: {text}")
