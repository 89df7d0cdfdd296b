"""Files that are read and replaced as a whole, unless somebody else was there meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.broker.auth.private_file import read_file, save_file
from perdure.errors import ConfigError


def test_what_was_read_is_replaced_unless_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    first = save_file(path, b"1", read=None)
    data, read = read_file(path, name="secret file", bytes_max=1)
    assert (data, read) == (b"1", first)
    second = save_file(path, b"22", read=read)
    with pytest.raises(ConfigError, match="changed by someone else meanwhile"):
        save_file(path, b"3", read=read)
    with pytest.raises(ConfigError, match="changed by someone else meanwhile"):
        save_file(path, b"3", read=None)
    assert read_file(path, name="secret file", bytes_max=9) == (b"22", second)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    save_file(tmp_path / "link", b"1", read=None)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "secret").read_bytes() == b"1"


def test_what_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "none", name="secret file", bytes_max=9)
    with pytest.raises(ConfigError, match=r"cannot read secret file .*: Is a directory"):
        read_file(tmp_path, name="secret file", bytes_max=9)
    (tmp_path / "secret").write_bytes(b"123")
    with pytest.raises(ConfigError, match="larger than 2 bytes"):
        read_file(tmp_path / "secret", name="secret file", bytes_max=2)
    with pytest.raises(ConfigError, match=r"cannot write .*: No such file"):
        save_file(tmp_path / "no" / "secret", b"", read=None)
