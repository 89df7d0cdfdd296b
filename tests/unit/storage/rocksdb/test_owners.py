"""Epochs are remembered within a bound; the record on disk is the truth."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contract.values import record

from perdure.config.schema import RocksdbConfig
from perdure.storage.codec import encode_record
from perdure.storage.rocksdb import keys, owners
from perdure.storage.rocksdb.engine import STATE, Engine
from perdure.storage.rocksdb.owners import Owners


def test_forgotten_epochs_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "_REMEMBERED_MAX", 2)
    engine = Engine(tmp_path / "d", RocksdbConfig())
    for number in range(5):
        value = encode_record(record(f"c{number}", epoch=number))
        engine.write([STATE, keys.session(f"c{number}"), value])
    found = Owners(lambda: engine)
    for _ in range(2):
        assert [found.epoch(f"c{number}") for number in range(6)] == [0, 1, 2, 3, 4, None]
    changes = found.changes
    found.changed({})
    assert found.changes == changes
    found.changed({"c1": 9, "c2": None})
    assert found.changes == changes + 1
    assert (found.epoch("c1"), found.epoch("c2")) == (9, None)
    found.forget()
    assert (found.epoch("c1"), found.epoch("c2")) == (1, 2)
    engine.close()
