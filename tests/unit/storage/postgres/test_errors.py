"""Which error of ours stands for which of asyncpg's."""

from __future__ import annotations

import asyncpg
import pytest

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
from perdure.storage.postgres.errors import SERIAL_NOT_FOLLOWING, is_connection_lost, translate


def of_state(sqlstate: str) -> asyncpg.PostgresError:
    error = asyncpg.PostgresError.new({"C": sqlstate, "M": "what happened"})
    assert isinstance(error, asyncpg.PostgresError)
    return error


@pytest.mark.parametrize(
    ("sqlstate", "expected", "is_lost"),
    [
        ("28P01", ConfigError, False),  # wrong password
        ("3D000", ConfigError, False),  # no such database
        ("42501", ConfigError, False),  # no rights
        ("53100", StorageFull, False),
        ("40001", StorageConflict, False),
        ("40P01", StorageConflict, False),
        ("57014", StorageTimeout, False),  # statement_timeout
        ("55P03", StorageTimeout, False),  # lock_timeout
        ("57P01", StorageUnavailable, True),  # shut down
        ("57P02", StorageUnavailable, True),  # crashed
        ("57P03", StorageUnavailable, True),  # starting
        ("53300", StorageUnavailable, False),  # too many connections
        ("08006", StorageUnavailable, True),
        ("25006", StorageUnavailable, False),  # a standby
        ("42P01", StorageError, False),  # no such table
        (SERIAL_NOT_FOLLOWING, UsageError, False),
    ],
)
def test_what_the_server_says(sqlstate: str, expected: type[PerdureError], is_lost: bool) -> None:
    error = of_state(sqlstate)
    translated = translate(error)
    assert type(translated) is expected
    assert "what happened" in translated.message
    assert is_connection_lost(error) is is_lost


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionRefusedError("refused"), StorageUnavailable),
        (TimeoutError(), StorageTimeout),
        (asyncpg.InterfaceError("connection is closed"), StorageUnavailable),
        (asyncpg.InternalClientError("another operation is in progress"), StorageUnavailable),
        (asyncpg.ConnectionDoesNotExistError("gone"), StorageUnavailable),
    ],
)
def test_what_the_network_says(error: Exception, expected: type[PerdureError]) -> None:
    assert type(translate(error)) is expected
    assert is_connection_lost(error)


def test_a_url_that_is_none_is_a_matter_of_configuration() -> None:
    assert type(translate(asyncpg.ClientConfigurationError("invalid DSN"))) is ConfigError
