"""Sections by name: `forwarders.<name>`, each of the class that its type names."""

from __future__ import annotations

import pytest

from perdure.config.load import changes, effective, load
from perdure.config.schema import MqttForwarderConfig
from perdure.errors import ConfigError

_SETS = ("forwarders.cloud.type=mqtt", "forwarders.cloud.url=mqtt://u:secret@h")


def test_flags_and_variables_name_their_settings() -> None:
    environ = {"PERDURE__FORWARDERS__CLOUD__FILTER": "[a/#, b]"}
    loaded = load(environ=environ, sets=_SETS)
    settings = loaded.config.forwarders["cloud"]
    assert isinstance(settings, MqttForwarderConfig)
    assert settings.filter == ("a/#", "b")
    shown = {each.path: each.value for each in effective(loaded)}
    assert shown["forwarders.cloud.filter"] == ("a/#", "b")
    assert "secret" not in str(shown["forwarders.cloud.url"])


def test_changes_of_forwarders_are_live() -> None:
    old, new = load(environ={}), load(environ={}, sets=_SETS)
    assert changes(old.config, new.config).restart == ("forwarders.cloud.start",)
    more = load(environ={}, sets=(*_SETS, "forwarders.cloud.window=5"))
    assert changes(new.config, more.config).live == ("forwarders.cloud.window",)


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("forwarders.cloud.urll=x", "unknown setting"),
        ("forwarders.cloud.window=none", "whole number"),
        ("forwarders.other.url=x", "needs a type"),
        ("forwarders.cloud.a.b=x", "forwarders.cloud.a"),
    ],
)
def test_what_is_wrong_is_said(setting: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(environ={}, sets=(*_SETS, setting))
    assert text in f"{caught.value} {caught.value.hint}"
