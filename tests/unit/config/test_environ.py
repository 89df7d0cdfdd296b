"""Overrides from the environment and from flags."""

from __future__ import annotations

import pytest

from perdure.config.document import Leaf, Node, Origin
from perdure.config.environ import Override, apply, from_environ, from_sets
from perdure.errors import ConfigError

FLAG = Origin("flag", "--set x")


def applied(path: str, text: str, tree: dict[str, Node] | None = None) -> dict[str, Node]:
    found: dict[str, Node] = {} if tree is None else tree
    apply(found, Override(tuple(path.split(".")), text, FLAG))
    return found


def raw(text: str) -> Leaf:
    return Leaf(text, FLAG, raw=True)


def test_names_give_paths() -> None:
    found = from_environ(
        {"PERDURE__MQTT__MAXIMUM_QOS": "1", "PERDURE_X": "no", "PATH": "no", "PERDURE__A": "2"}
    )
    assert found == [
        Override(("a",), "2", Origin("env", "PERDURE__A")),
        Override(("mqtt", "maximum_qos"), "1", Origin("env", "PERDURE__MQTT__MAXIMUM_QOS")),
    ]


def test_sets_keep_their_order_and_further_equal_signs() -> None:
    assert from_sets(["a.b=1", " c = x=y"]) == [
        Override(("a", "b"), "1", Origin("flag", "--set a.b")),
        Override(("c",), " x=y", Origin("flag", "--set c")),
    ]
    with pytest.raises(ConfigError, match=r"expected section\.name=value"):
        from_sets(["a.b"])


def test_a_setting_is_put_where_it_belongs() -> None:
    assert applied("storage.rocksdb.layout", "x") == {"storage": {"rocksdb": {"layout": raw("x")}}}
    tree: dict[str, Node] = {"mqtt": {"maximum_qos": Leaf(2, FLAG)}}
    assert applied("mqtt.maximum_qos", "1", tree) == {"mqtt": {"maximum_qos": raw("1")}}


def test_a_section_left_empty_in_the_file_can_be_filled() -> None:
    tree: dict[str, Node] = {"mqtt": Leaf(None, FLAG)}
    assert applied("mqtt.maximum_qos", "1", tree) == {"mqtt": {"maximum_qos": raw("1")}}


def test_listeners_by_name_and_by_number() -> None:
    assert applied("listeners.tcp.bind", "x") == {"listeners": {"tcp": {"bind": raw("x")}}}
    tree = applied("listeners.tcp.0.bind", "x")
    assert tree == {"listeners": {"tcp": {"bind": raw("x")}}}
    applied("listeners.tcp.1.bind", "y", tree)
    assert tree == {"listeners": {"tcp": [{"bind": raw("x")}, {"bind": raw("y")}]}}
    applied("listeners.tcp.1.backlog", "5", tree)
    assert tree == {
        "listeners": {"tcp": [{"bind": raw("x")}, {"bind": raw("y"), "backlog": raw("5")}]}
    }
    with pytest.raises(ConfigError, match="there are 2 tcp listeners") as caught:
        applied("listeners.tcp.bind", "z", tree)
    assert caught.value.hint == "name one by its number: tcp.0"
    with pytest.raises(ConfigError, match="there are only 2"):
        applied("listeners.tcp.7.bind", "z", tree)
    with pytest.raises(ConfigError, match="there is no ws listener 0"):
        applied("listeners.ws.1.bind", "z", tree)
    with pytest.raises(ConfigError, match="name a setting below"):
        applied("listeners.tcp.0", "z", tree)


def test_an_empty_member_can_be_filled() -> None:
    tree: dict[str, Node] = {"listeners": {"tcp": [Leaf(None, FLAG)]}}
    assert applied("listeners.tcp.bind", "x", tree) == {"listeners": {"tcp": [{"bind": raw("x")}]}}


def test_a_whole_section_is_yaml() -> None:
    assert applied("listeners.ws", "[{bind: 'h:1'}, {backlog: 5}]") == {
        "listeners": {"ws": [{"bind": Leaf("h:1", FLAG)}, {"backlog": Leaf(5, FLAG)}]}
    }


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("mqqt.maximum_qos", "did you mean mqtt?"),
        ("mqtt.maximum_qoz", "did you mean maximum_qos?"),
        ("mqtt.maximum_qos.x", "mqtt.maximum_qos is one value"),
        ("", ""),
    ],
)
def test_unknown_settings(path: str, hint: str) -> None:
    with pytest.raises(KeyError) as caught:
        applied(path, "1")
    assert caught.value.args == (hint,)
