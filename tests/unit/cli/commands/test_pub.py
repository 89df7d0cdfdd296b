"""``perdure pub`` against a broker in a thread."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from perdure.cli.main import run
from perdure.mqtt.encode import properties_from_forward
from perdure.mqtt.packets import Connect, Disconnect, Properties, Publish
from tests.unit.cli.mini_broker import MiniBroker


def stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


@pytest.mark.parametrize("qos", ["0", "1", "2"])
@pytest.mark.parametrize("version", ["5", "311"])
def test_a_message(mini_broker: MiniBroker, qos: str, version: str) -> None:
    args = ["-p", mini_broker.port, "-h", "127.0.0.1", "-V", version]
    assert run(["pub", *args, "-t", "a/b", "-m", "hello", "-q", qos, "-r"]) == 0
    (publish,) = mini_broker.of(Publish)
    assert (publish.topic, publish.payload, publish.qos) == ("a/b", b"hello", int(qos))
    assert publish.retain
    assert len(mini_broker.of(Disconnect)) == 1


def test_payloads(mini_broker: MiniBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = ["pub", "-p", mini_broker.port, "-t", "t", "-q", "1"]
    file = tmp_path / "payload"
    file.write_bytes(b"\x00\xff")
    assert run([*where, "-f", str(file)]) == 0
    assert run([*where, "-n"]) == 0
    stdin(monkeypatch, b"all\nof it")
    assert run([*where, "-s"]) == 0
    assert run([*where, "-m", "again", "--repeat", "3", "--repeat-delay", "0.001"]) == 0
    payloads = [publish.payload for publish in mini_broker.of(Publish)]
    assert payloads == [b"\x00\xff", b"", b"all\nof it", b"again", b"again", b"again"]


def test_lines(mini_broker: MiniBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 3_000
    stdin(monkeypatch, b"".join(b"%d\n" % number for number in range(count)) + b"last")
    assert run(["pub", "-p", mini_broker.port, "-t", "t", "-l", "-q", "1", "-M", "10"]) == 0
    payloads = [publish.payload for publish in mini_broker.of(Publish)]
    assert payloads == [b"%d" % number for number in range(count)] + [b"last"]


def test_lines_from_a_pipe(mini_broker: MiniBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.write(write, b"one\ntwo\n")
    os.close(write)
    with open(read) as pipe:  # noqa: PTH123 - a descriptor, not a path
        monkeypatch.setattr(sys, "stdin", pipe)
        assert run(["pub", "-p", mini_broker.port, "-t", "t", "-l"]) == 0
    assert [publish.payload for publish in mini_broker.of(Publish)] == [b"one", b"two"]


def test_properties_travel(mini_broker: MiniBroker) -> None:
    args = ["-D", "publish", "user-property", "k", "v", "-D", "publish", "content-type", "c"]
    args += ["-D", "publish", "message-expiry-interval", "9"]
    args += ["-D", "disconnect", "reason-string", "done"]
    assert run(["pub", "-p", mini_broker.port, "-t", "t", "-m", "x", *args]) == 0
    (publish,) = mini_broker.of(Publish)
    expected = Properties(content_type="c", user_properties=(("k", "v"),))
    assert properties_from_forward(publish.forward) == expected
    assert publish.expiry_s == 9
    (disconnect,) = mini_broker.of(Disconnect)
    assert disconnect.properties.reason_string == "done"


def test_url_with_topic(mini_broker: MiniBroker) -> None:
    url = f"mqtt://ada:secret@127.0.0.1:{mini_broker.port}/from/url"
    assert run(["pub", "-L", url, "-m", "x"]) == 0
    assert mini_broker.of(Publish)[0].topic == "from/url"
    assert mini_broker.of(Connect)[0].username == "ada"


def test_json_tells_what_became_of_it(
    mini_broker: MiniBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    mini_broker.puback = 0x10
    args = ["pub", "-p", mini_broker.port, "-t", "t", "-m", "x", "-q", "1", "-i", "me", "--json"]
    assert run(args) == 0
    assert json.loads(capsys.readouterr().out) == {
        "client_id": "me",
        "topic": "t",
        "qos": 1,
        "sent": 1,
        "refused": 0,
        "reason_codes": {"16": 1},
    }


def test_a_refused_message(mini_broker: MiniBroker, capsys: pytest.CaptureFixture[str]) -> None:
    mini_broker.puback = 0x97
    args = ["pub", "-p", mini_broker.port, "-t", "t", "-m", "x", "-q", "1", "--json"]
    assert run(args) == 69
    captured = capsys.readouterr()
    assert json.loads(captured.out)["reason_codes"] == {"151": 1}
    assert "Quota exceeded" in captured.err


def test_what_the_server_does_not_take(mini_broker: MiniBroker) -> None:
    mini_broker.server = Properties(maximum_qos=0)
    assert run(["pub", "-p", mini_broker.port, "-t", "t", "-m", "x", "-q", "1"]) == 69
    assert mini_broker.of(Publish) == []


@pytest.mark.parametrize(("version", "reason"), [("5", 0x87), ("311", 5)])
def test_a_refused_connection(
    mini_broker: MiniBroker, capsys: pytest.CaptureFixture[str], version: str, reason: int
) -> None:
    mini_broker.connack = reason
    args = ["pub", "-p", mini_broker.port, "-V", version, "-t", "t", "-m", "x", "--json"]
    assert run(args) == 69
    captured = capsys.readouterr()
    assert json.loads(captured.out)["reason_code"] == reason
    assert "ot authori" in captured.err


def test_a_broker_that_goes_away(
    mini_broker: MiniBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    mini_broker.silent = True
    mini_broker.after_connect = lambda connection: mini_broker.loop.call_later(
        0.05, connection.stream.abort
    )
    assert run(["pub", "-p", mini_broker.port, "-t", "t", "-m", "x", "-q", "1"]) == 69
    assert "cannot reach" in capsys.readouterr().err


@pytest.mark.parametrize("qos", ["0", "1"])
def test_lines_that_were_not_sent_are_not_a_success(
    mini_broker: MiniBroker, monkeypatch: pytest.MonkeyPatch, qos: str
) -> None:
    stdin(monkeypatch, b"line\n" * 200_000)
    mini_broker.silent = True
    mini_broker.after_connect = lambda connection: mini_broker.loop.call_later(
        0.02, connection.stream.abort
    )
    assert run(["pub", "-p", mini_broker.port, "-t", "t", "-l", "-q", qos]) == 69


def test_a_signal_takes_leave(mini_broker: MiniBroker) -> None:
    mini_broker.silent = True
    mini_broker.after_connect = lambda _: mini_broker.loop.call_later(
        0.05, os.kill, os.getpid(), signal.SIGTERM
    )
    assert run(["pub", "-p", mini_broker.port, "-t", "t", "-m", "x", "-q", "1"]) == 143
    assert len(mini_broker.of(Disconnect)) == 1


def test_nobody_there(mini_broker: MiniBroker, capsys: pytest.CaptureFixture[str]) -> None:
    port = mini_broker.port

    async def stop() -> None:
        mini_broker.listener.stop_accepting()

    mini_broker.call(stop())
    assert run(["pub", "-h", "127.0.0.1", "-p", port, "-t", "t", "-m", "x"]) == 69
    assert f"127.0.0.1:{port}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "args",
    [
        ["-t", "t"],
        ["-t", "t", "-m", "x", "-n"],
        ["-m", "x"],
        ["-t", "a/#", "-m", "x"],
        ["-t", "t", "-l", "--repeat", "2"],
        ["-t", "t", "-s", "--password-file", "-"],
    ],
)
def test_usage(args: list[str]) -> None:
    assert run(["pub", *args]) == 64


def test_an_absent_file(tmp_path: Path) -> None:
    assert run(["pub", "-t", "t", "-f", str(tmp_path / "absent")]) == 65
