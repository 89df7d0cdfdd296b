"""``perdure sub`` against a broker in a thread."""

from __future__ import annotations

import json
import os
import signal

import pytest

from perdure.cli.main import run
from perdure.mqtt.packets import (
    Ack,
    Connect,
    Disconnect,
    Properties,
    Publish,
    Subscribe,
    SubscribeFilter,
    Unsubscribe,
)
from tests.unit.cli.mini_broker import MiniBroker, MiniConnection

Captured = pytest.CaptureFixture[bytes]


@pytest.fixture(autouse=True)
def quick_reconnects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.cli.commands.sub.PAUSE_FIRST_S", 0.01)


def test_messages_are_printed_until_the_count(
    mini_broker: MiniBroker, capsysbinary: Captured
) -> None:
    mini_broker.messages = [Publish("a/1", b"one"), Publish("a/2", b"\xfftwo"), Publish("a", b"-")]
    assert run(["sub", "-p", mini_broker.port, "-t", "a/#", "-C", "2"]) == 0
    assert capsysbinary.readouterr().out == b"one\n\xfftwo\n"
    (subscribe,) = mini_broker.of(Subscribe)
    assert subscribe.filters == [SubscribeFilter("a/#", 0, False, False, 0)]
    assert len(mini_broker.of(Disconnect)) == 1


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["-v"], b"a/1 one\n"),
        (["-N"], b"one"),
        (["-F", "%t:%l"], b"a/1:3\n"),
        (["-F", "%t\\0", "-N"], b"a/1\0"),
    ],
)
def test_formats(
    mini_broker: MiniBroker, capsysbinary: Captured, args: list[str], expected: bytes
) -> None:
    mini_broker.messages = [Publish("a/1", b"one")]
    assert run(["sub", "-p", mini_broker.port, "-t", "a/#", "-C", "1", *args]) == 0
    assert capsysbinary.readouterr().out == expected


def test_json_is_one_object_for_each_message(
    mini_broker: MiniBroker, capsysbinary: Captured
) -> None:
    mini_broker.messages = [Publish("a", b"1"), Publish("b", b"2", retain=True)]
    assert run(["sub", "-p", mini_broker.port, "-t", "#", "-C", "2", "--json"]) == 0
    records = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    assert [(record["topic"], record["payload_text"]) for record in records] == [
        ("a", "1"),
        ("b", "2"),
    ]
    assert [record["retain"] for record in records] == [False, True]


def test_what_is_printed_is_acknowledged_and_nothing_else(
    mini_broker: MiniBroker, capsysbinary: Captured
) -> None:
    mini_broker.messages = [Publish("a", b"%d" % n, 1, packet_id=n) for n in (1, 2, 3)]
    args = ["sub", "-p", mini_broker.port, "-t", "a", "-q", "1", "-c", "-i", "me", "-C", "2"]
    assert run(args) == 0
    assert capsysbinary.readouterr().out == b"1\n2\n"
    assert [ack.packet_id for ack in mini_broker.of(Ack)] == [1, 2]


def test_filters_on_what_is_printed(mini_broker: MiniBroker, capsysbinary: Captured) -> None:
    mini_broker.messages = [
        Publish("a/kept", b"old", retain=True),
        Publish("a/noise", b"noise"),
        Publish("a/kept", b"new"),
    ]
    args = ["sub", "-p", mini_broker.port, "-t", "a/#", "-T", "+/noise", "-R", "-C", "1"]
    assert run(args) == 0
    assert capsysbinary.readouterr().out == b"new\n"


def test_retained_only_and_removing(mini_broker: MiniBroker, capsysbinary: Captured) -> None:
    mini_broker.messages = [
        Publish("a/1", b"old", retain=True),
        Publish("a/2", b"live"),
        Publish("a/3", b"never"),
    ]
    args = ["sub", "-p", mini_broker.port, "-t", "a/#", "--retained-only", "--remove-retained"]
    assert run(args) == 0
    assert capsysbinary.readouterr().out == b"old\n"
    (cleared,) = mini_broker.of(Publish)
    assert (cleared.topic, cleared.payload, cleared.retain) == ("a/1", b"", True)


def test_exit_once_subscribed_and_unsubscribe(mini_broker: MiniBroker) -> None:
    args = ["sub", "-p", mini_broker.port, "-t", "a", "-t", "b/+", "-q", "2", "-U", "old", "-E"]
    args += ["--no-local", "--retain-as-published"]
    assert run(args) == 0
    (subscribe,) = mini_broker.of(Subscribe)
    assert subscribe.filters == [
        SubscribeFilter("a", 2, True, True, 0),
        SubscribeFilter("b/+", 2, True, True, 0),
    ]
    assert mini_broker.of(Unsubscribe)[0].filters == ["old"]


def test_only_unsubscribe(mini_broker: MiniBroker) -> None:
    assert run(["sub", "-p", mini_broker.port, "-U", "old"]) == 0
    assert mini_broker.of(Subscribe) == []


def test_replay(mini_broker: MiniBroker) -> None:
    since = "2026-01-31T00:00:00Z"
    args = ["sub", "-p", mini_broker.port, "-t", "a/#", "--replay-from", since, "-E"]
    assert run([*args, "-D", "subscribe", "user-property", "k", "v"]) == 0
    assert run([*args, "-V", "311"]) == 0
    new, old = mini_broker.of(Subscribe)
    assert new.properties.user_properties == (("k", "v"), ("replay-from", since))
    assert [asked.filter for asked in new.filters] == ["a/#"]
    assert [asked.filter for asked in old.filters] == [f"$replay/{since}/a/#"]


@pytest.mark.parametrize(("args", "code"), [([], 0), (["-C", "1"], 1)])
def test_time_runs_out(mini_broker: MiniBroker, args: list[str], code: int) -> None:
    assert run(["sub", "-p", mini_broker.port, "-t", "a", "-W", "2", *args]) == code
    assert len(mini_broker.of(Disconnect)) == 1


def test_the_time_begins_with_the_subscription(
    mini_broker: MiniBroker, capsysbinary: Captured
) -> None:
    """Where connecting is slow, the command would else leave before it has subscribed."""
    mini_broker.suback_after_s = 0.6
    mini_broker.messages = [Publish("a", b"x")]
    assert run(["sub", "-p", mini_broker.port, "-t", "a", "-W", "0.5", "-C", "1"]) == 0
    assert capsysbinary.readouterr().out == b"x\n"


def test_a_subscription_that_is_not_answered(
    mini_broker: MiniBroker, capsysbinary: Captured
) -> None:
    mini_broker.suback_after_s = None
    args = ["sub", "-p", mini_broker.port, "-t", "a", "-W", "0.1", "--connect-timeout", "2"]
    assert run(args) == 69
    assert b"SUBSCRIBE was not answered" in capsysbinary.readouterr().err


def test_a_refused_filter(mini_broker: MiniBroker, capsysbinary: Captured) -> None:
    mini_broker.suback = [0x87]
    assert run(["sub", "-p", mini_broker.port, "-t", "secret", "--json"]) == 69
    captured = capsysbinary.readouterr()
    assert json.loads(captured.out)["reason_code"] == 0x87
    assert b"secret" in captured.err


def test_one_filter_of_two_refused(mini_broker: MiniBroker, capsysbinary: Captured) -> None:
    mini_broker.suback = [0x87, 0]
    mini_broker.messages = [Publish("open", b"x")]
    args = ["sub", "-p", mini_broker.port, "-t", "secret", "-t", "open", "-C", "1"]
    assert run(args) == 69
    assert capsysbinary.readouterr().out == b"x\n"


def test_a_refused_connection(mini_broker: MiniBroker, capsysbinary: Captured) -> None:
    mini_broker.connack = 0x86
    assert run(["sub", "-p", mini_broker.port, "-t", "a", "--json"]) == 69
    assert json.loads(capsysbinary.readouterr().out)["reason_code"] == 0x86


def test_a_lost_connection_is_made_again(mini_broker: MiniBroker, capsysbinary: Captured) -> None:
    def cut_once(connection: MiniConnection) -> None:
        if mini_broker.connects == 1:
            mini_broker.loop.call_later(0.02, connection.stream.abort)
            mini_broker.messages = [Publish("a", b"second")]

    mini_broker.messages = [Publish("a", b"first")]
    mini_broker.after_subscribe = cut_once
    assert run(["sub", "-p", mini_broker.port, "-t", "a", "-C", "2"]) == 0
    captured = capsysbinary.readouterr()
    assert captured.out == b"first\nsecond\n"
    assert b"connecting again" in captured.err
    assert len(mini_broker.of(Subscribe)) == 2


def test_a_resumed_session_is_not_subscribed_again(
    mini_broker: MiniBroker, capsysbinary: Captured
) -> None:
    def cut_once(connection: MiniConnection) -> None:
        if mini_broker.connects == 1:
            mini_broker.loop.call_later(0.02, connection.stream.abort)
        else:
            connection.send(Publish("a", b"after", 1, packet_id=9))

    mini_broker.after_connect = cut_once
    args = ["sub", "-p", mini_broker.port, "-t", "a", "-q", "1", "-c", "-i", "me", "-C", "1"]
    assert run([*args, "--quiet"]) == 0
    captured = capsysbinary.readouterr()
    assert captured.out == b"after\n"
    assert captured.err == b""
    assert len(mini_broker.of(Subscribe)) == 1
    assert [connect.clean_start for connect in mini_broker.of(Connect)] == [False, False]


def test_reconnecting_goes_on_until_the_broker_is_back(
    mini_broker: MiniBroker, capsysbinary: Captured
) -> None:
    def away_for_a_while(connection: MiniConnection) -> None:
        if mini_broker.connects == 1:
            mini_broker.listener.stop_accepting()
            connection.send(Disconnect(0x8B, Properties()))
            connection.stream.close()
            mini_broker.loop.call_later(0.05, mini_broker.listener.start)
            mini_broker.messages = [Publish("a", b"back")]

    mini_broker.after_subscribe = away_for_a_while
    url = f"mqtt://127.0.0.1:{mini_broker.port}/a"
    assert run(["sub", "-L", url, "-C", "1"]) == 0
    captured = capsysbinary.readouterr()
    assert captured.out == b"back\n"
    assert b"Server shutting down" in captured.err


def test_no_reconnect(mini_broker: MiniBroker) -> None:
    mini_broker.after_subscribe = lambda connection: connection.stream.abort()
    assert run(["sub", "-p", mini_broker.port, "-t", "a", "--no-reconnect"]) == 69


def test_refused_at_the_reconnect(mini_broker: MiniBroker) -> None:
    def cut(connection: MiniConnection) -> None:
        mini_broker.connack = 0x8A
        connection.stream.abort()

    mini_broker.after_subscribe = cut
    assert run(["sub", "-p", mini_broker.port, "-t", "a"]) == 69


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_take_leave(mini_broker: MiniBroker, number: signal.Signals) -> None:
    mini_broker.after_subscribe = lambda _: os.kill(os.getpid(), number)
    assert run(["sub", "-p", mini_broker.port, "-t", "a"]) == 128 + number
    assert len(mini_broker.of(Disconnect)) == 1


def test_a_payload_that_is_no_json(mini_broker: MiniBroker, capsysbinary: Captured) -> None:
    mini_broker.messages = [Publish("a", b"{"), Publish("a", b"1")]
    assert run(["sub", "-p", mini_broker.port, "-t", "a", "-F", "%J", "-C", "1"]) == 0
    captured = capsysbinary.readouterr()
    assert json.loads(captured.out)["payload"] == 1
    assert b"not valid JSON" in captured.err


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["-t", "a", "-v", "--json"],
        ["-t", "a", "-F", "%z"],
        ["-t", "a", "-R", "--retained-only"],
        ["-t", "a", "-V", "311", "--no-local"],
        ["-t", "a", "-C", "0"],
    ],
)
def test_usage(args: list[str]) -> None:
    assert run(["sub", *args]) == 64


@pytest.mark.parametrize("code", [0x81, 0x87, 0x8E, 0x8F, 0x9E])
def test_what_would_fail_again_is_not_tried_again(
    mini_broker: MiniBroker, capsysbinary: Captured, code: int
) -> None:
    """A filter that ends the connection was tried 900 times a second."""
    mini_broker.after_subscribe = lambda connection: connection.send(Disconnect(code, Properties()))
    assert run(["sub", "-p", mini_broker.port, "-t", "a", "-i", "me"]) == 69
    assert mini_broker.connects == 1
    said = capsysbinary.readouterr().err
    assert b"%#04x" % code in said
    assert (b"--insist" in said) == (code == 0x8E)


def test_insisting_on_a_session(mini_broker: MiniBroker, capsysbinary: Captured) -> None:
    def take_over(connection: MiniConnection) -> None:
        if mini_broker.connects < 3:
            connection.send(Disconnect(0x8E, Properties()))
        else:
            connection.send(Publish("a", b"mine"))

    mini_broker.after_subscribe = take_over
    args = ["sub", "-p", mini_broker.port, "-t", "a", "-i", "me", "--insist", "-C", "1"]
    assert run(args) == 0
    assert capsysbinary.readouterr().out == b"mine\n"


def test_a_connection_that_does_not_last_is_not_made_again_at_once(
    mini_broker: MiniBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3.1.1 closes without a word, so only the pauses keep two clients of one name apart."""
    monkeypatch.setattr("perdure.cli.commands.sub.PAUSE_FIRST_S", 0.2)
    mini_broker.after_subscribe = lambda connection: connection.stream.close()
    args = ["sub", "-V", "311", "-p", mini_broker.port, "-t", "a", "-W", "1", "-C", "1"]
    assert run(args) == 1
    # At 0 s, after 0.1 s at least, 0.3 s, and 0.7 s.
    assert 2 <= mini_broker.connects <= 4


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["-t", "a/#/b"], b"-t 'a/#/b'"),
        (["-t", "a+"], b"-t 'a+'"),
        (["-t", "a", "-t", ""], b"-t ''"),
        (["-t", "$share/g"], b"$share"),
        (["-t", "$replay/yesterday/a"], b"RFC 3339"),
        (["-t", "a", "-U", "b#"], b"-U"),
        (["-t", "a", "-T", "b#"], b"-T"),
        (["-t", "a", "--replay-from", "yesterday"], b"--replay-from"),
        (["-t", "$share/g/a", "--no-local"], b"--no-local"),
        (["-t", "a", "--will-topic", "b/#"], b"--will-topic"),
        (["-t", "a" * 70_000], b"65535"),
        (["-t", "a", "-i", "x" * 70_000], b"-i"),
    ],
)
def test_what_cannot_work_is_refused_before_connecting(
    capsysbinary: Captured, args: list[str], words: bytes
) -> None:
    assert run(["sub", "-p", "1", *args]) == 64
    assert words in capsysbinary.readouterr().err


def test_all_filters_refused(mini_broker: MiniBroker, capsysbinary: Captured) -> None:
    mini_broker.suback = [0x87, 0x8F]
    assert run(["sub", "-p", mini_broker.port, "-t", "a", "-t", "b"]) == 69
    said = capsysbinary.readouterr().err
    assert b"a: Not authorized (reason code 0x87)" in said
    assert b"refused all filters" in said
