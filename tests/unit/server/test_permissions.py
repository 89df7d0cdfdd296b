"""What others may read is said at the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.config.schema import AuthConfig, Config, Listener, ListenersConfig, StorageConfig
from perdure.server.permissions import open_to_others


@pytest.mark.parametrize(
    ("directory", "users", "key", "named"),
    [
        (0o700, 0o600, 0o600, []),
        (0o700, 0o640, 0o640, []),
        (0o755, 0o600, 0o600, ["storage.path"]),
        (0o750, 0o600, 0o600, ["storage.path"]),
        (0o711, 0o600, 0o600, ["storage.path"]),
        (0o700, 0o644, 0o600, ["auth.password_file"]),
        (0o700, 0o660, 0o604, ["auth.password_file", "listeners.tls.0.private_key"]),
    ],
)
def test_open_to_others(
    tmp_path: Path, directory: int, users: int, key: int, named: list[str]
) -> None:
    data, file, private = tmp_path / "data", tmp_path / "users", tmp_path / "key"
    data.mkdir()
    for path, mode in ((file, users), (private, key)):
        path.touch()
        path.chmod(mode)
    data.chmod(directory)
    config = Config(
        storage=StorageConfig(path=str(data)),
        auth=AuthConfig(password_file=str(file), ban_file=str(tmp_path / "missing")),
        listeners=ListenersConfig(tls=(Listener(private_key=str(private)),)),
    )
    found = list(open_to_others(config))
    assert [name for name, _, _ in found] == named
    modes = {str(data): directory, str(file): users, str(private): key}
    for _, path, remedy in found:
        name = path.split(" ")[0]
        assert path == f"{name} ({modes[name]:04o})"
        assert remedy.startswith("chmod ")
        assert remedy.endswith(name)


def test_nothing_is_kept_in_memory(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    config = Config(storage=StorageConfig(backend="memory", path=str(tmp_path)))
    assert list(open_to_others(config)) == []


def test_a_file_is_no_directory_to_close(tmp_path: Path) -> None:
    (tmp_path / "file").touch(mode=0o644)
    assert list(open_to_others(Config(storage=StorageConfig(path=str(tmp_path / "file"))))) == []
