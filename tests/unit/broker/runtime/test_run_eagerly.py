"""Work that is begun at once and goes on as a task if it has to wait."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from perdure.broker.runtime.scheduler import run_eagerly


class Spawned:
    """Keeps what would be a task; a scheduler as far as ``run_eagerly`` needs one."""

    def __init__(self) -> None:
        self.rest: Coroutine[Any, Any, None] | None = None

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        assert name == "work"
        self.rest = work


async def _waiting(ended: list[str]) -> None:
    try:
        await asyncio.sleep(0)
        ended.append("done")
    except BaseException as error:
        ended.append(type(error).__name__)
        raise


def _begun() -> tuple[Coroutine[Any, Any, None], Coroutine[Any, Any, None], list[str]]:
    ended: list[str] = []
    work, spawned = _waiting(ended), Spawned()
    assert not run_eagerly(spawned, work, name="work")  # type: ignore[arg-type]
    assert spawned.rest is not None
    spawned.rest.send(None)  # it waits
    return work, spawned.rest, ended


@pytest.mark.parametrize("first", ["work", "rest"])
def test_what_is_given_up_is_closed_in_any_order(first: str) -> None:
    """A broker that is gone takes its tasks along; in which order, nobody knows."""
    work, rest, ended = _begun()
    for each in (work, rest) if first == "work" else (rest, work):
        each.close()
    assert ended == ["GeneratorExit"]
