"""Reading a state: the prefix of its keys, and that nothing is read before it is connected.

Everything else is in ``tests/contract/test_drivers.py``, for every server.
"""

from __future__ import annotations

import pytest

from perdure.errors import ConfigError, StorageUnavailable
from perdure.storage.redis.state import RedisState
from perdure.storage.remote.driver import ROWS

URL = "redis://127.0.0.1:6379/0"


@pytest.mark.parametrize("prefix", ["", "a{b", "a}b"])
def test_a_prefix_that_would_move_the_slots_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigError, match="no braces"):
        RedisState(URL, prefix=prefix, command_timeout_s=1)


async def test_before_it_is_connected_nothing_is_read() -> None:
    state = RedisState(URL, prefix="p", command_timeout_s=1)
    with pytest.raises(StorageUnavailable, match="there is no connection"):
        await state.get([(ROWS, b"c", b"s")])
    await state.close()
