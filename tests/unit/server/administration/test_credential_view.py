"""A page of credentials reads the file once for each of its states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure.broker.auth.credentials import CredentialsFile
from perdure.server.administration.credential_view import CredentialView


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each reading of a file."""
    seen: list[str] = []
    load = CredentialsFile.load

    def counted(path: Any, *, missing_ok: bool = False) -> CredentialsFile:
        seen.append(str(path))
        return load(path, missing_ok=missing_ok)

    monkeypatch.setattr(CredentialsFile, "load", counted)
    return seen


def add(path: Path, user: str) -> None:
    """As ``perdure passwd`` does, in another process."""
    file = CredentialsFile.load(path, missing_ok=True)
    file.add_token(user, user * 40)
    file.save()


def test_a_file_is_read_once_for_each_of_its_states(tmp_path: Path, loads: list[str]) -> None:
    path = tmp_path / "users"
    view = CredentialView(lambda: None)
    assert list(view.look(str(path))[1]) == []
    add(path, "b")
    loads.clear()
    assert [list(view.look(str(path))[1]) for _ in range(3)] == [["b"]] * 3
    assert len(loads) == 1
    add(path, "a")
    assert list(view.look(str(path))[1]) == ["a", "b"]
    path.unlink()
    assert list(view.look(str(path))[1]) == []


def test_the_file_that_is_in_force_is_not_read_again(tmp_path: Path, loads: list[str]) -> None:
    path = tmp_path / "users"
    add(path, "b")
    in_force = CredentialsFile.load(path)
    loads.clear()
    view = CredentialView(lambda: in_force)
    file, names = view.look(str(path))
    assert file is in_force
    assert (list(names), loads) == (["b"], [])
    # The disk has another one, which no reload has put in force yet.
    add(path, "a")
    loads.clear()
    assert [list(view.look(str(path))[1]) for _ in range(2)] == [["a", "b"]] * 2
    assert len(loads) == 1
    in_force = CredentialsFile.load(path)
    assert view.look(str(path))[0] is in_force
