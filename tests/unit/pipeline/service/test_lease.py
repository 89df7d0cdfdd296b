"""One works on an archive; who is late is fenced off."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.errors import Fenced
from perdure.pipeline.lake.stores import LOCAL
from perdure.pipeline.service.lease import Lease


class Wall:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = 1_000_000_000

    def __call__(self) -> int:
        return self.now


def lease(place: Path, wall: Wall, name: str) -> Lease:
    return Lease(
        str(place), LOCAL, holder=name, time_s=60, now_us=wall, wait=lambda _: pytest.fail("waits")
    )


def test_one_has_it_until_it_is_late(tmp_path: Path) -> None:
    wall = Wall()
    one, two = lease(tmp_path, wall, "one"), lease(tmp_path, wall, "two")
    assert one.take() is None
    other = two.take()
    assert other is not None
    assert (other.holder, other.epoch) == ("one", 1)
    wall.now += 50_000_000
    one.renew()
    wall.now += 50_000_000
    assert two.take() is not None
    # It renewed no more: the next one has it, and the first is told before its next commit.
    wall.now += 11_000_000
    assert two.take() is None
    assert two.epoch == 2
    for late in (one.check, one.renew):
        with pytest.raises(Fenced, match="two"):
            late()
    two.check()
    one.give_back()
    two.check()
    two.give_back()
    assert one.take() is None
    assert one.epoch == 3


def test_a_damaged_file_is_nobodys(tmp_path: Path) -> None:
    one = lease(tmp_path, Wall(), "one")
    (tmp_path / "lease.json").write_bytes(b"{")
    assert one.take() is None
    one.check()
