"""A node's directory belongs to one log."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.errors import ConfigError
from perdure.server.cluster_log_note import TOPIC_FILE, keep_to_log


def test_who_has_read_keeps_to_its_log(tmp_path: Path) -> None:
    keep_to_log(tmp_path, "perdure.a.log", has_read=False)
    keep_to_log(tmp_path, "perdure.a.log", has_read=True)
    with pytest.raises(ConfigError, match=r"has read topic perdure\.a\.log so far") as refused:
        keep_to_log(tmp_path, "perdure.b.log", has_read=True)
    assert refused.value.path == "cluster.name"
    keep_to_log(tmp_path, "perdure.a.log", has_read=True)
    assert [path.name for path in tmp_path.iterdir()] == [TOPIC_FILE]


def test_who_has_read_nothing_may_go_elsewhere(tmp_path: Path) -> None:
    keep_to_log(tmp_path, "perdure.a.log", has_read=False)
    keep_to_log(tmp_path, "perdure.b.log", has_read=False)
    keep_to_log(tmp_path, "perdure.b.log", has_read=True)


def test_a_directory_without_a_note_is_taken_at_its_word(tmp_path: Path) -> None:
    keep_to_log(tmp_path, "perdure.a.log", has_read=True)
    with pytest.raises(ConfigError):
        keep_to_log(tmp_path, "perdure.b.log", has_read=True)


def test_a_note_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    (tmp_path / TOPIC_FILE).mkdir()
    with pytest.raises(ConfigError, match=TOPIC_FILE):
        keep_to_log(tmp_path, "perdure.a.log", has_read=True)
