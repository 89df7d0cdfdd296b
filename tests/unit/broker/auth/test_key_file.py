"""The key file: made once, private, whole."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from perdure.broker.auth.key_file import load_or_create_key
from perdure.errors import ConfigError, StorageCorrupt


def test_key_file_is_made_once_and_private(tmp_path: Path) -> None:
    path = tmp_path / "auth.key"
    assert load_or_create_key(path, b"k" * 32) == b"k" * 32
    assert load_or_create_key(path, b"x" * 32) == b"k" * 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(b"short")
    with pytest.raises(StorageCorrupt, match="it has 5 bytes"):
        load_or_create_key(path, b"x" * 32)
    with pytest.raises(ConfigError, match="cannot use"):
        load_or_create_key(tmp_path / "none" / "auth.key", b"x" * 32)


def test_key_file_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut or a full disk must not leave a part of it: no broker starts on that."""
    path = tmp_path / "auth.key"

    def full(_: int) -> None:
        assert not path.exists()
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(ConfigError, match="No space left"):
            load_or_create_key(path, b"k" * 32)
    assert list(tmp_path.iterdir()) == []
    assert load_or_create_key(path, b"x" * 32) == b"x" * 32
