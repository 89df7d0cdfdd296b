"""Loading: precedence, origins, warnings, redaction, reload."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from perdure.config.document import Origin
from perdure.config.environ import Override
from perdure.config.load import REDACTED, changes, effective, examine, leaves, load
from perdure.config.schema import Config, MqttConfig, RetentionConfig
from perdure.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "perdure.yaml"
    path.write_text("mqtt:\n  receive_maximum: 10\n  maximum_qos: 1\nsys: {interval_s: 1m}\n")
    return path


def test_nothing_given_is_the_default() -> None:
    loaded = load(environ={})
    assert loaded.config == Config()
    assert loaded.origins == {}
    assert loaded.warnings == ()


def test_later_wins(file: Path) -> None:
    environ = {"PERDURE__MQTT__RECEIVE_MAXIMUM": "20", "PERDURE__MQTT__TOPIC_LEVELS_MAX": "5"}
    override = Override(("mqtt", "topic_levels_max"), "7", Origin("flag", "--levels"))
    loaded = load(file, environ=environ, sets=["mqtt.receive_maximum=30"], overrides=[override])
    mqtt = loaded.config.mqtt
    assert (mqtt.maximum_qos, mqtt.receive_maximum, mqtt.topic_levels_max) == (1, 30, 7)
    assert loaded.config.sys.interval_s == 60
    assert loaded.origins == {
        "mqtt.receive_maximum": Origin("flag", "--set mqtt.receive_maximum"),
        "mqtt.maximum_qos": Origin("file", f"{file}:3"),
        "mqtt.topic_levels_max": Origin("flag", "--levels"),
        "sys.interval_s": Origin("file", f"{file}:4"),
    }


def test_toml_gives_the_same(file: Path, tmp_path: Path) -> None:
    toml = tmp_path / "perdure.toml"
    toml.write_text('[mqtt]\nreceive_maximum = 10\nmaximum_qos = 1\n[sys]\ninterval_s = "1m"\n')
    assert load(toml, environ={}).config == load(file, environ={}).config


def test_interpolated_values_are_typed_by_their_setting(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "node: {name: '${N}'}\nmqtt: {receive_maximum: '${R:7}'}\nstorage: {record: '${T}'}\n"
    )
    config = load(path, environ={"N": "5", "T": "[a, b/#]"}).config
    assert config.node.name == "5"
    assert config.mqtt.receive_maximum == 7
    assert config.storage.record == ("a", "b/#")


def test_listener_ports_follow_their_kind(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "auth: {allow_anonymous: always}\n"
        "listeners:\n"
        "  tcp: [{bind: 0.0.0.0}, {bind: 'localhost:1884'}]\n"
        "  ws: {}\n"
        "  wss: {bind: '*', certificate: c, private_key: k}\n"
        "  tls: {bind: '127.0.0.1:1883', enabled: false}\n"
    )
    listeners = load(path, environ={}).config.listeners
    assert [listener.bind for listener in listeners.tcp] == ["0.0.0.0:1883", "localhost:1884"]
    assert listeners.ws[0].bind == "127.0.0.1:8083"
    assert listeners.wss[0].bind == ":8084"
    assert listeners.tls[0].bind == "127.0.0.1:1883"


def test_an_unknown_variable_is_a_warning() -> None:
    loaded = load(environ={"PERDURE__MQTT__MAX_QOS": "1", "PERDURE__ZZZZ": "1"})
    assert loaded.config == Config()
    assert loaded.warnings == (
        "PERDURE__MQTT__MAX_QOS: there is no setting mqtt.max_qos; did you mean maximum_qos?",
        "PERDURE__ZZZZ: there is no setting zzzz",
    )


def test_an_unknown_flag_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"--set mqtt\.max_qos: mqtt\.max_qos: unknown") as caught:
        load(environ={}, sets=["mqtt.max_qos=1"])
    assert caught.value.hint == "did you mean maximum_qos?"
    with pytest.raises(ConfigError, match=r"expected section\.name=value"):
        load(environ={}, sets=["mqtt"])


def test_a_bad_variable_is_an_error_that_names_it() -> None:
    with pytest.raises(ConfigError) as caught:
        load(environ={"PERDURE__MQTT__MAXIMUM_QOS": "9"})
    assert str(caught.value) == (
        "PERDURE__MQTT__MAXIMUM_QOS: mqtt.maximum_qos: must be at most 2, is 9"
    )
    assert caught.value.path == "mqtt.maximum_qos"


def test_the_first_problem_tells_how_many_more(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("mqtt:\n  a: 1\n  b: 2\n  maximum_qos: x\n")
    with pytest.raises(ConfigError, match=r"c.yaml:2: mqtt.a: unknown setting \(and 2 more\)"):
        load(path, environ={})
    loaded, problems = examine(path, environ={})
    assert loaded is None
    assert [problem.path for problem in problems] == ["mqtt.a", "mqtt.b", "mqtt.maximum_qos"]


def test_relations_are_checked() -> None:
    with pytest.raises(ConfigError, match="open to other machines") as caught:
        load(environ={}, sets=["listeners.tcp.bind=0.0.0.0:1883"])
    assert str(caught.value).startswith("--set listeners.tcp.bind: listeners.tcp.0.bind: ")


def test_an_override_that_does_not_fit_is_told() -> None:
    _, problems = examine(environ={}, sets=["listeners.ws.3.bind=x:1"])
    assert "there is no ws listener 0" in str(problems[0])


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2")
    path = tmp_path / "c.yaml"
    path.write_text(f"node:\n  name: ${{file:{tmp_path}/secret}}\n")
    loaded = load(path, environ={})
    assert loaded.config.node.name == "hunter2"
    (name,) = [item for item in effective(loaded) if item.path == "node.name"]
    assert name.value == REDACTED
    assert str(name.origin) == f"{path}:2"


def test_effective_lists_every_leaf_once(file: Path) -> None:
    found = list(effective(load(file, environ={})))
    assert [item.path for item in found] == [
        path for path, _ in leaves(load(file, environ={}).config)
    ]
    by_path = {item.path: item for item in found}
    assert by_path["listeners.tcp.0.bind"].setting.path == "listeners.tcp[].bind"
    assert str(by_path["mqtt.packet_size_max"].origin) == "default"


def test_changes_tell_what_a_reload_can_do() -> None:
    old = Config()
    new = msgspec.structs.replace(
        old, retention=RetentionConfig(time_s=5), mqtt=MqttConfig(maximum_qos=1)
    )
    assert changes(old, new).live == ("retention.time_s",)
    assert changes(old, new).restart == ("mqtt.maximum_qos",)
    assert changes(old, old).live == changes(old, old).restart == ()
    fewer = load(environ={}, sets=["listeners.tcp=[]", "listeners.ws={}"]).config
    assert "listeners.tcp.0.bind" in changes(old, fewer).restart
    assert "listeners.ws.0.bind" in changes(old, fewer).restart
