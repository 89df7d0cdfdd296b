"""Loop choice and descriptors."""

from __future__ import annotations

import asyncio
import builtins
import resource
import sys
from typing import Any

import pytest
import uvloop

from perdure.server.process import (
    SWITCH_S,
    loop_factory,
    raise_open_files,
    run,
    settle_threads,
)


async def running() -> type[asyncio.AbstractEventLoop]:
    return type(asyncio.get_running_loop())


def without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any) -> Any:
        if name == "uvloop":
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", refuse)


def test_the_loop_that_was_chosen_runs() -> None:
    assert run(running()) is uvloop.Loop
    assert run(running(), loop="uvloop") is uvloop.Loop
    assert issubclass(run(running(), loop="asyncio"), asyncio.SelectorEventLoop)


def test_uvloop_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    without_uvloop(monkeypatch)
    assert loop_factory() is asyncio.SelectorEventLoop
    with pytest.raises(ImportError):
        loop_factory("uvloop")


def test_open_files_are_raised_to_the_hard_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowered = min(soft, 512)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowered, hard))
    try:
        assert raise_open_files() == hard
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
        assert raise_open_files() == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_limit_that_is_not_granted_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert raise_open_files() == 256


def test_a_thread_that_waits_for_the_gil_asks_for_it_soon() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(10 * SWITCH_S)
    try:
        settle_threads()
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
    finally:
        sys.setswitchinterval(before)
