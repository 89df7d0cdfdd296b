"""Requests of one query share a view; a view is closed once and never under a request."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import StorageUnavailable
from perdure.web.views import AGE_MAX_S, IDLE_MAX_S, VIEWS_MAX, Views


class Files:
    """Counts openings and closings."""

    opened = 0
    closed = 0

    def __init__(self, _path: Path) -> None:
        Files.opened += 1
        self.is_open = True

    def close(self) -> None:
        assert self.is_open
        self.is_open = False
        Files.closed += 1


class Time:
    now = 100.0


@pytest.fixture
def views() -> Any:
    Files.opened = Files.closed = 0
    Time.now = 100.0
    return Views(Path("d"), clock=lambda: Time.now, opener=Files)  # type: ignore[arg-type]


def test_one_name_is_one_view(views: Views) -> None:
    with views.use("a") as one:
        with views.use("a") as two:
            assert one is two
        with views.use("b") as other:
            assert other is not one
    with views.use("a") as again:
        assert again is one
    assert (Files.opened, Files.closed) == (2, 0)
    views.close()
    assert Files.closed == 2


def test_without_a_name_it_is_not_shared(views: Views) -> None:
    with views.use("") as one, views.use("") as two:
        assert one is not two
    assert (Files.opened, Files.closed) == (2, 2)
    assert views.tidy() == 0


def test_what_is_not_used_is_closed(views: Views) -> None:
    with views.use("a"):
        Time.now += IDLE_MAX_S + 1
        assert views.tidy() == 1
    Time.now += IDLE_MAX_S
    assert views.tidy() == 1
    Time.now += 1
    assert views.tidy() == 0
    assert Files.closed == 1


def test_few_are_kept(views: Views) -> None:
    for number in range(VIEWS_MAX + 3):
        Time.now += 1
        with views.use(str(number)):
            pass
    assert views.tidy() == VIEWS_MAX
    with views.use("0"):
        pass
    assert Files.opened == VIEWS_MAX + 4


def test_an_old_view_is_not_given_out_again(views: Views) -> None:
    with views.use("a") as first:
        Time.now += AGE_MAX_S + 1
        with views.use("a") as second:
            assert second is not first
    assert Files.closed == 1
    Time.now += AGE_MAX_S + 1
    with views.use("a") as third:
        assert third is not second
    assert (Files.opened, Files.closed) == (3, 2)


def test_one_that_cannot_be_opened_is_tried_again() -> None:
    left = [1]

    def opener(path: Path) -> Files:
        if left:
            left.pop()
            raise StorageUnavailable("away")
        return Files(path)

    views = Views(Path("d"), opener=opener)  # type: ignore[arg-type]
    with pytest.raises(StorageUnavailable), views.use("a"):
        pass
    with views.use("a") as found:
        assert isinstance(found, Files)
    views.close()


def test_threads_that_ask_at_once_get_one_view(views: Views) -> None:
    found = []
    gate = threading.Barrier(4)

    def ask() -> None:
        gate.wait()
        with views.use("a") as files:
            found.append(files)
            gate.wait()

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(map(id, found))) == 1
    views.close()
    assert (Files.opened, Files.closed) == (1, 1)
