"""Documents: YAML and TOML keep the places of what they hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.config import document
from perdure.config.bind import Binder
from perdure.config.document import Document, Leaf, Node, Origin, parse_toml, parse_yaml
from perdure.config.schema import Config
from perdure.errors import ConfigError


def plain(node: Node) -> object:
    if isinstance(node, Leaf):
        return node.value
    if isinstance(node, list):
        return [plain(item) for item in node]
    return {key: plain(value) for key, value in node.items()}


def test_yaml_values_and_lines() -> None:
    found = parse_yaml("a:\n  b: 5\n  c: [x, y]\nd: yes\n", "f.yaml", {})
    assert plain(found.root) == {"a": {"b": 5, "c": ["x", "y"]}, "d": True}
    assert found.places["a.b"] == Origin("file", "f.yaml:2")
    inner = found.root["a"]
    assert isinstance(inner, dict)
    assert inner["b"] == Leaf(5, Origin("file", "f.yaml:2"))


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "null"])
def test_empty_yaml_is_an_empty_mapping(text: str) -> None:
    assert parse_yaml(text, "f", {}) == Document({}, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "f:1"),
        ("a: 1\n\tb: 2", "f:2"),
        ("- 1", "expected a mapping"),
        ("5", "expected a mapping"),
        ("a: 1\nb: 2\na: 3", r"f:3: a: written twice"),
        ("? [x]\n: 1", "a key must be a word"),
        ("a: !!python/object:os.system x", "f:1"),
        ("a: &x [*x]", "nested too deeply"),
        ("a: ${NOPE}", r"f:1: a: the environment variable NOPE"),
        ("a: 2026-99-99", "f:1: a: "),
        ("a: !!bool x", "f:1: a: 'x' is not a value"),
        ("a: !!int ''", "f:1: a: '' is not a value"),
        ("a: 1\n---\nb: 2", "f"),
        ("a: \x00", "f"),
    ],
)
def test_bad_yaml(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_yaml(text, "f", {})


def test_yaml_merge_keys_may_be_overridden() -> None:
    found = parse_yaml("x: &x {b: 1, c: 2}\ny:\n  <<: *x\n  c: 3\n", "f", {})
    assert plain(found.root["y"]) == {"b": 1, "c": 3}


def test_yaml_interpolates_and_leaves_the_type_open() -> None:
    found = parse_yaml('a: ${P:1883}\nb: "$${x}"\n', "f", {})
    assert found.root["a"] == Leaf("1883", Origin("file", "f:1"), raw=True)
    assert plain(found.root["b"]) == "${x}"


def test_toml_values_and_lines() -> None:
    text = (
        'top = 1\n[a.b]\nc = "x"\n"q" = [1, 2]\n\n[[l.tcp]]\nbind = "h:1"\n'
        '[[l.tcp]]\nbind = "h:2"\n[i]\nt = { u = 5 }\n'
    )
    found = parse_toml(text, "f.toml", {})
    assert plain(found.root) == {
        "top": 1,
        "a": {"b": {"c": "x", "q": [1, 2]}},
        "l": {"tcp": [{"bind": "h:1"}, {"bind": "h:2"}]},
        "i": {"t": {"u": 5}},
    }
    places = {path: origin.where for path, origin in found.places.items()}
    assert places["top"] == "f.toml:1"
    assert places["a.b.c"] == "f.toml:3"
    assert places["a.b.q"] == "f.toml:4"
    assert places["l.tcp.1.bind"] == "f.toml:9"
    assert places["i.t.u"] == "f.toml:11"


def test_toml_interpolates() -> None:
    found = parse_toml('a = "${P:5}"\n', "f", {"P": "7"})
    assert found.root["a"] == Leaf("7", Origin("file", "f:1"), raw=True)
    with pytest.raises(ConfigError, match="f:1: a: the environment variable Q"):
        parse_toml('a = "${Q}"\n', "f", {})


def test_bad_toml_tells_its_line() -> None:
    with pytest.raises(ConfigError, match="f:2: "):
        parse_toml("a = 1\nb =\n", "f", {})


def test_toml_depth_is_bounded() -> None:
    with pytest.raises(ConfigError, match="nested too deeply"):
        parse_toml(f"a = {'[' * 30}{']' * 30}", "f", {})
    with pytest.raises(ConfigError, match="nested too deeply"):
        parse_toml(f"a = {'[' * 30_000}", "f", {})


def test_yaml_depth_is_bounded_before_we_see_it() -> None:
    with pytest.raises(ConfigError, match="nested too deeply"):
        parse_yaml("[" * 30_000, "f", {})


YAML_PIECES = st.sampled_from(
    ["a", "b:", ": ", "- ", "\n", "\n  ", "{", "}", "[", "]", ",", "&x ", "*x", "<<: ", "!!int ",
     "!!set ", "!!binary ", "!!timestamp ", "!x ", "'", '"', "|\n", ">", "#", "%", "@", "?", "1",
     "0x", "0b2", "1:9", "2026-02-30", "~", "null", "${A}", "${", "$${", "---", "...", "\t", "\x07"]
)  # fmt: skip


@given(st.lists(YAML_PIECES, max_size=25).map("".join))
@settings(max_examples=300)
def test_any_yaml_is_a_document_or_a_config_error(text: str) -> None:
    try:
        found = parse_yaml(text, "f", {"A": "1"})
    except ConfigError:
        return
    Binder(found.places).section(Config, found.root)


@given(st.text(alphabet='ab.=[]{}",\n#1$', max_size=40))
def test_any_toml_is_a_document_or_a_config_error(text: str) -> None:
    try:
        found = parse_toml(text, "f", {})
    except ConfigError:
        return
    Binder(found.places).section(Config, found.root)


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c.yaml").write_text("a: 1")
    (tmp_path / "c.toml").write_text("a = 1")
    assert plain(document.read_document(tmp_path / "c.yaml", {}).root) == {"a": 1}
    assert plain(document.read_document(tmp_path / "c.toml", {}).root) == {"a": 1}
    with pytest.raises(ConfigError, match=r"cannot read .*: No such file"):
        document.read_document(tmp_path / "none.yaml", {})
    (tmp_path / "b.yaml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        document.read_document(tmp_path / "b.yaml", {})
    monkeypatch.setattr(document, "FILE_BYTES_MAX", 2)
    with pytest.raises(ConfigError, match="larger than 2"):
        document.read_document(tmp_path / "c.yaml", {})


def test_origins_are_told_in_a_word() -> None:
    assert str(Origin("default")) == "default"
    assert str(Origin("env", "PERDURE__A")) == "PERDURE__A"
