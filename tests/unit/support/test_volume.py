"""Volumes: only what needs no root; ``tests/crash`` mounts them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.volume import PowerVolume, SmallVolume, Volume, VolumesUnavailable


def test_without_root_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(VolumesUnavailable, match="only root"):
        SmallVolume(tmp_path, size_bytes=1024)
    with pytest.raises(VolumesUnavailable, match="only root"):
        PowerVolume(tmp_path)


def test_a_tool_that_is_missing_or_fails_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(VolumesUnavailable, match="there is no mkfs"):
        PowerVolume(tmp_path)
    tool = tmp_path / "mkfs.ext4"
    tool.write_text("#!/bin/sh\necho no such luck >&2\nexit 1\n")
    tool.chmod(0o700)
    with pytest.raises(VolumesUnavailable, match="no such luck"):
        PowerVolume(tmp_path)


def test_closing_what_is_not_mounted_is_harmless(tmp_path: Path) -> None:
    Volume(tmp_path / "mount").close()
