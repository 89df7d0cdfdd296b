"""Epochs are remembered within a bound; the record on disk is the truth."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.config.schema import RocksdbConfig
from perdure.storage.codec import encode_record
from perdure.storage.rocksdb import keys, owners
from perdure.storage.rocksdb.engine import STATE, Engine
from perdure.storage.rocksdb.owners import Owners
from tests.contract.values import record


def test_forgotten_epochs_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "_REMEMBERED_MAX", 2)
    engine = Engine(tmp_path / "d", RocksdbConfig())
    for number in range(5):
        value = encode_record(record(f"c{number}", epoch=number))
        engine.write([STATE, keys.session(f"c{number}"), value])
    found = Owners(lambda: engine)
    for _ in range(2):
        assert [found.epoch(f"c{number}") for number in range(6)] == [0, 1, 2, 3, 4, None]
    found.changed({"c1": 9, "c2": None}, {"c1": 0})
    assert (found.epoch("c1"), found.epoch("c2")) == (9, None)
    found.forget()
    assert (found.epoch("c1"), found.epoch("c2")) == (1, 2)
    engine.close()


def test_only_a_deadline_that_is_there_is_read_from_disk(tmp_path: Path) -> None:
    engine = Engine(tmp_path / "d", RocksdbConfig())
    uses: list[None] = []

    def use() -> Engine:
        uses.append(None)
        return engine

    values = [record("due", epoch=0, expires_at_us=70), record("never", epoch=4)]
    for value in values:
        engine.write([STATE, keys.session(value.client_id), encode_record(value)])
    found = Owners(use)
    for value in values:
        found.seen(value)
    assert not uses
    assert (found.epoch("due"), found.epoch("never")) == (0, 4)
    assert found.deadline_us("never") == 0
    assert not uses
    assert found.deadline_us("due") == 70
    assert len(uses) == 1
    assert (found.deadline_us("nobody"), found.epoch("nobody")) == (-1, None)
    assert len(uses) == 2
    found.changed({"due": 5, "never": 6, "nobody": 1}, {"due": 0, "never": 80, "nobody": 0})
    assert [found.epoch(name) for name in ("due", "never", "nobody")] == [5, 6, 1]
    assert (found.deadline_us("due"), found.deadline_us("nobody")) == (0, 0)
    assert len(uses) == 2
    engine.close()
