"""Forwarders that were added: their settings from text, and the file that keeps them."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.config.schema import MqttForwarderConfig
from perdure.errors import ConfigError
from perdure.forwarders.definitions import Definitions, bind_settings, load, save


def test_settings_are_bound_as_those_of_a_file() -> None:
    given = {"type": "mqtt", "url": "mqtt://h", "filter": "[a/#, b]", "hold_s": "2d"}
    settings = bind_settings("x", given)
    assert isinstance(settings, MqttForwarderConfig)
    assert (settings.filter, settings.hold_s) == (("a/#", "b"), 172_800)


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("x", {"url": "mqtt://h"}, "needs a type"),
        ("x", {"type": "mqqt"}, "there is no type"),
        ("x", {"type": "mqtt", "window": "0"}, "at least 1"),
        ("x", {"type": "mqtt", "bootstrap": "h"}, "unknown setting"),
        ("X y", {"type": "mqtt"}, "no name"),
    ],
)
def test_what_cannot_be_used_is_said(name: str, given: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        bind_settings(name, dict(given))


def test_the_file_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "forwarders.json"
    assert load(path) == Definitions()
    kept = Definitions({"x": {"type": "mqtt", "url": "mqtt://h"}}, ["x", "of-the-configuration"])
    save(path, kept)
    assert load(path) == kept
    assert path.stat().st_mode & 0o777 == 0o600  # it may hold passwords
    path.write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"forwarders\.json"):
        load(path)
