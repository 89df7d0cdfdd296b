"""The ledger: goes on after a crash at any byte, belongs to one migration and one process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from perdure.errors import ConfigError, StorageLocked
from perdure.pipeline.jobs.migrate.contract import Mismatch, Range, RangeResult
from perdure.pipeline.jobs.migrate.ledger import VERSION, Header, Ledger

HEADER = Header(VERSION, "from", "to", "options", 5)
RANGES = [Range(0, 3, None, "c"), Range(1, 2, "c", "ä"), Range(2, 1, clients=("x", "y"))]


async def _each(ranges: list[Range]) -> AsyncIterator[Range]:
    for part in ranges:
        yield part


async def _planned(path: Path) -> Ledger:
    ledger = Ledger(path)
    assert ledger.begin(HEADER) == HEADER
    assert not ledger.is_planned
    await ledger.plan(_each(RANGES))
    return ledger


async def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    ledger = await _planned(tmp_path)
    ledger.add(RangeResult(1, 2, 3))
    ledger.close()
    again = Ledger(tmp_path)
    assert again.begin(msgspec.structs.replace(HEADER, begun_at_us=9)) == HEADER
    assert again.is_planned
    assert again.ranges == RANGES
    assert [part.number for part in again.pending()] == [0, 2]
    assert again.done == {1: RangeResult(1, 2, 3)}
    again.close()


async def test_a_range_that_was_not_verified_is_done_again(tmp_path: Path) -> None:
    ledger = await _planned(tmp_path)
    ledger.add(RangeResult(0, mismatches=[Mismatch("c", 1, 0, "no queue")]))
    assert [part.number for part in ledger.pending()] == [0, 1, 2]
    ledger.add(RangeResult(0))
    ledger.close()
    again = Ledger(tmp_path)
    assert [part.number for part in again.pending()] == [1, 2]
    again.close()


async def test_a_line_that_was_cut_is_no_line(tmp_path: Path) -> None:
    ledger = await _planned(tmp_path)
    ledger.add(RangeResult(0))
    whole = (tmp_path / "done.jsonl").read_bytes()
    ledger.add(RangeResult(1))
    both = (tmp_path / "done.jsonl").read_bytes()
    ledger.close()
    for length in range(len(whole), len(both)):
        (tmp_path / "done.jsonl").write_bytes(both[:length])
        again = Ledger(tmp_path)
        assert list(again.done) == [0]
        again.add(RangeResult(2))
        again.close()
        last = Ledger(tmp_path)
        assert list(last.done) == [0, 2]
        last.close()


async def test_a_plan_is_whole_or_not_there(tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[Range]:
        yield RANGES[0]
        raise OSError("gone")

    ledger = Ledger(tmp_path)
    ledger.begin(HEADER)
    with pytest.raises(OSError, match="gone"):
        await ledger.plan(broken())
    ledger.close()
    again = Ledger(tmp_path)
    assert not again.is_planned
    again.close()
    (tmp_path / "plan.jsonl").write_bytes(
        msgspec.json.encode(HEADER) + b"\n" + b'{"ranges":1}' + b"\n"
    )
    with pytest.raises(ConfigError, match="damaged"):
        Ledger(tmp_path)


async def test_another_migration_needs_another_ledger(tmp_path: Path) -> None:
    (await _planned(tmp_path)).close()
    ledger = Ledger(tmp_path)
    with pytest.raises(ConfigError, match="another migration"):
        ledger.begin(msgspec.structs.replace(HEADER, target="elsewhere"))
    with pytest.raises(StorageLocked):
        Ledger(tmp_path)
    ledger.close()


async def test_what_was_staged_is_taken_away(tmp_path: Path) -> None:
    ledger = await _planned(tmp_path)
    (ledger.stage / "range").write_bytes(b"x")
    ledger.finish()
    assert not (tmp_path / "stage").exists()
    ledger.finish()
    ledger.close()
