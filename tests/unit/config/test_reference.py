"""The reference page is complete and the one in the repository is current."""

from __future__ import annotations

from pathlib import Path

import yaml

from perdure.config.fields import settings
from perdure.config.load import load
from perdure.config.reference import INTRODUCTION, default_text, reference
from perdure.config.schema import MIB, Config

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "configuration.md"


def test_page_is_current() -> None:
    assert PAGE.read_text() == reference(), "run: perdure config reference > " + str(PAGE)


def test_every_setting_is_on_it() -> None:
    page = reference()
    for setting in settings(Config):
        assert f"| `{setting.path.rpartition('.')[2]}` |" in page
    assert page.count("## listeners.") == 1


def test_example_on_it_loads(tmp_path: Path) -> None:
    example = INTRODUCTION.split("```yaml\n")[1].split("```")[0]
    assert yaml.safe_load(example)
    path = tmp_path / "perdure.yaml"
    path.write_text(example)
    assert load(path, environ={}).config.retention.time_s == 30 * 86_400


def test_defaults_are_written_as_an_operator_would() -> None:
    texts = {setting.path: default_text(setting) for setting in settings(Config)}
    assert texts["mqtt.packet_size_max"] == "`16MiB`"
    assert texts["retention.time_s"] == "`7d`"
    assert texts["retention.bytes"] == "`0`"
    assert texts["mqtt.retain_available"] == "`true`"
    assert texts["auth.acl_file"] == "(empty)"
    assert texts["storage.record"] == "`[#]`"
    assert texts["session.expiry_max_s"] == "`4294967295`"
    assert Config().mqtt.packet_size_max == 16 * MIB
