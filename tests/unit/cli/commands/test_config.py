"""perdure config."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from perdure.cli.main import run
from perdure.config.reference import reference
from tests.unit.server.administration.fake_service import FakeBroker

ANY_PORT = ["--set", "listeners.tcp.bind=127.0.0.1:0"]

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.yaml"
    path.write_text("mqtt:\n  maximum_qoz: 1\n  receive_maximum: 0\n")
    return path


def test_check_passes(capsys: Capture) -> None:
    assert run(["config", "check", *ANY_PORT]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "configuration: ok\n")
    assert run(["config", "check", "--json", *ANY_PORT]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "ok": True,
        "problems": [],
        "warnings": [],
        "not_asked": [],
    }


def test_check_tells_every_problem(bad: Path, capsys: Capture) -> None:
    assert run(["config", "check", "-c", str(bad)]) == 78
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        f"{bad}:2\tmqtt.maximum_qoz\tunknown setting\tdid you mean maximum_qos?",
        f"{bad}:3\tmqtt.receive_maximum\tmust be at least 1, is 0\t",
    ]
    assert captured.err == f"{bad}: 2 problems\n"
    assert run(["config", "check", "-c", str(bad), "--json"]) == 78
    found = json.loads(capsys.readouterr().out)
    assert not found["ok"]
    assert found["problems"][0]["hint"] == "did you mean maximum_qos?"


def test_check_looks_at_what_the_configuration_names(tmp_path: Path, capsys: Capture) -> None:
    """What serve would refuse is a problem; what may be otherwise later is a warning."""
    path = tmp_path / "c.yaml"
    path.write_text(f"auth:\n  password_file: {tmp_path}/users\n  acl_file: {tmp_path}/acl\n")
    (tmp_path / "acl").write_text("nonsense\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        args = ["config", "check", "-c", str(path), "--set", f"listeners.tcp.bind={bind}"]
        assert run(args) == 78
        captured = capsys.readouterr()
        lines = [line.split("\t")[:2] for line in captured.out.splitlines()]
        assert lines == [[f"{path}:2", "auth.password_file"], [f"{path}:3", "auth.acl_file"]]
        assert f"warning: listeners.tcp.0.bind: cannot listen on {bind}" in captured.err
        path.write_text("")
        assert run([*args, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"]
    assert len(found["warnings"]) == 1


def test_check_says_whom_it_has_not_asked(capsys: Capture) -> None:
    """Nothing goes over the network before that is asked for."""
    store = ["--set", "storage.backend=redis", "--set", f"storage.redis.url={_dead_url()}"]
    lookups = ["--set", f"auth.redis.url={_dead_url()}", "--set", "auth.redis.user_key=u:%u"]
    chain = ["--set", "auth.chain=[redis]"]
    args = ["config", "check", *ANY_PORT, *store, *lookups, *chain]
    assert run(args) == 0
    said = capsys.readouterr().err
    assert "not asked whether they answer: storage.redis, auth.redis (--connect asks)" in said
    assert run([*args, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["not_asked"] == ["storage.redis", "auth.redis"]


def test_check_asks_whoever_is_named(capsys: Capture) -> None:
    """What serve waits for in vain is a problem; what it goes on without is a warning."""
    url = _dead_url()
    lookups = ["--set", f"auth.redis.url={url}", "--set", "auth.redis.user_key=u:%u"]
    args = ["config", "check", "--connect", *ANY_PORT, *lookups, "--set", "auth.chain=[redis]"]
    assert run(args) == 0
    said = capsys.readouterr().err
    assert "warning: auth.redis: " in said
    assert "refused until it answers" in said
    store = ["--set", "storage.backend=redis", "--set", f"storage.redis.url={url}"]
    assert run([*args, *store, "--json"]) == 78
    found = json.loads(capsys.readouterr().out)
    assert [each["path"] for each in found["problems"]] == ["storage.redis"]
    assert len(found["warnings"]) == 1
    assert found["not_asked"] == []


def _dead_url() -> str:
    """Of a port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"redis://127.0.0.1:{taken.getsockname()[1]}"


def test_check_warns_of_unknown_variables(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("PERDURE__NOPE", "1")
    assert run(["config", "check"]) == 0
    assert "warning: PERDURE__NOPE: there is no setting nope" in capsys.readouterr().err
    assert run(["config", "show", "node"]) == 0
    assert "warning: PERDURE__NOPE" in capsys.readouterr().err


def test_show_and_origin(capsys: Capture) -> None:
    args = ["config", "show", "storage.commit", "--set", "storage.commit_interval_us=2ms"]
    assert run(args) == 0
    assert capsys.readouterr().out.splitlines()[0] == "storage.commit_interval_us\t2ms"
    assert run([*args, "--origin"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "storage.commit_interval_us\t2ms\t--set storage.commit_interval_us"
    assert lines[1] == "storage.commit_messages_max\t1000\tdefault"
    assert run([*args, "--changed", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {
            "setting": "storage.commit_interval_us",
            "value": 2000,
            "origin": "--set storage.commit_interval_us",
            "unit": "us",
            "reload": "restart",
        }
    ]


def test_show_writes_values_as_they_may_be_set(capsys: Capture) -> None:
    run(["config", "show"])
    values = dict(line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert values["mqtt.packet_size_max"] == "16MiB"
    assert values["retention.time_s"] == "7d"
    assert values["mqtt.retain_available"] == "true"
    assert values["session.expiry_max_s"] == "4294967295"
    assert values["listeners.tcp.0.bind"] == "127.0.0.1:1883"


def test_show_fails_on_a_bad_file(bad: Path, capsys: Capture) -> None:
    assert run(["config", "show", "-c", str(bad)]) == 78
    assert capsys.readouterr().err == (
        f"perdure: {bad}:2: mqtt.maximum_qoz: unknown setting (and 1 more)\n"
        "hint: did you mean maximum_qos?\n"
    )


def test_reference(capsys: Capture) -> None:
    assert run(["config", "reference"]) == 0
    assert capsys.readouterr().out == reference()
    assert run(["config", "reference", "--json"]) == 0
    found = {row["setting"]: row for row in json.loads(capsys.readouterr().out)}
    assert found["storage.durability"]["choices"] == ["memory", "os", "fsync"]
    assert found["retention.time_s"]["default"] == 604_800


def test_diff_of_two_files(tmp_path: Path, capsys: Capture) -> None:
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text("mqtt:\n  receive_maximum: 10\nauth:\n  acl_file: a\n")
    new.write_text("mqtt:\n  receive_maximum: 20\nsys:\n  interval_s: 5\n")
    assert run(["config", "diff", "-c", str(new), "--against", str(old), "--json"]) == 1
    rows = {row["setting"]: row for row in json.loads(capsys.readouterr().out)}
    assert set(rows) == {"mqtt.receive_maximum", "auth.acl_file", "sys.interval_s"}
    row = rows["mqtt.receive_maximum"]
    assert (row["before"], row["after"]) == (10, 20)
    assert (row["before_origin"], row["after_origin"]) == (f"{old}:2", f"{new}:2")
    assert {row["takes"] for row in rows.values()} <= {"reload", "restart"}
    assert run(["config", "diff", "-c", str(new), "--against", str(new)]) == 0
    assert capsys.readouterr().out == ""


def test_diff_against_the_running_broker(
    running: FakeBroker, tmp_path: Path, capsys: Capture
) -> None:
    here = ["--set", f"storage.path={tmp_path}"]
    running.sets = (f"storage.path={tmp_path}",)
    assert run(["config", "diff", *here]) == 0
    running.changed = {"log.level": ("debug", "api"), "mqtt.receive_maximum": (5, "a.yaml:3")}
    assert run(["config", "diff", *here]) == 1
    assert set(capsys.readouterr().out.splitlines()) == {
        "mqtt.receive_maximum\t5\t1024\trestart",
        "log.level\tdebug\tinfo\tconfig.patch with null",
    }
    assert run(["config", "diff", "--set", f"storage.path={tmp_path}/none"]) == 69
