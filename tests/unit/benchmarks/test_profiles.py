"""Perdure beside itself with its state elsewhere."""

from __future__ import annotations

import pytest
from benchmarks import profiles

from perdure.config.load import load


@pytest.mark.parametrize("backend", ["redis", "postgres"])
def test_a_contestant_keeps_its_state_in_the_server(backend: str) -> None:
    url = f"{backend}://user:secret@localhost:1/0"
    contestant = profiles.contestant(backend, url, "a name")
    storage = load(environ=contestant.environment).config.storage
    assert storage.backend == backend
    assert getattr(storage, backend).url == url
    assert contestant.name == "a name"
    assert contestant.settings.qos == 1
