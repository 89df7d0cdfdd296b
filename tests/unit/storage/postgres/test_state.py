"""Reading a state: what is shown of a URL, and that nothing is read before it is connected.

Everything else is in ``tests/contract/test_drivers.py``, for every server.
"""

from __future__ import annotations

import pytest

from perdure.errors import StorageUnavailable
from perdure.storage.postgres.state import PostgresState, redacted
from perdure.storage.remote.driver import ROWS


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@db/perdure", "postgresql://me:***@db/perdure"),
        ("postgresql://me@db/perdure?password=secret", "postgresql://me@db/perdure"),
        ("postgresql://a:1@x:1,y:2/perdure", "postgresql://a:***@x:1,y:2/perdure"),
        ("postgresql://db:5432/perdure", "postgresql://db:5432/perdure"),
    ],
)
def test_a_password_is_not_shown(url: str, shown: str) -> None:
    assert redacted(url) == shown


async def test_before_it_is_connected_nothing_is_read() -> None:
    state = PostgresState("postgresql://me@db/perdure", connect_timeout_s=1, command_timeout_s=1)
    with pytest.raises(StorageUnavailable, match="postgresql://me@db/perdure is not connected"):
        await state.get([(ROWS, b"c", b"s")])
    await state.close()
