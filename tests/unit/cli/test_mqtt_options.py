"""From options to a client."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from perdure.cli.exit_codes import CommandFailed
from perdure.cli.mqtt_options import (
    ClientOptions,
    MqttCommand,
    make_client,
    mqtt_options,
    resolve_url,
)
from perdure.errors import ConfigError
from perdure.mqtt.decode import Decoder
from perdure.mqtt.encode import forward_properties
from perdure.mqtt.packets import Connect, Properties
from perdure.net.client import Client


def options_of(*args: str) -> ClientOptions:
    """The options that a command gets."""
    taken: list[ClientOptions] = []

    @click.command(cls=MqttCommand, context_settings={"help_option_names": ["--help"]})
    @mqtt_options
    def command(options: ClientOptions) -> None:
        taken.append(options)

    result = CliRunner().invoke(command, list(args), standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return taken[0]


def connect_of(client: Client) -> Connect:
    client.protocol.connect()
    decoder = Decoder(server_side=True, packet_size_max=100_000)
    (packet,) = decoder.feed(client.protocol.data_to_send())
    assert isinstance(packet, Connect)
    return packet


def test_defaults() -> None:
    client = make_client(options_of())
    assert (client.endpoint.host, client.endpoint.port) == ("localhost", 1883)
    assert (client.endpoint.transport, client.endpoint.tls) == ("tcp", None)
    connect = connect_of(client)
    assert (connect.protocol, connect.clean_start, connect.keep_alive) == (5, True, 60)
    assert (connect.client_id, connect.username, connect.password) == ("", None, None)
    assert connect.will is None
    assert connect.properties == Properties()


@pytest.mark.parametrize(
    ("args", "port"),
    [
        (["--tls"], 8883),
        (["--ws"], 8083),
        (["--ws", "--tls"], 8084),
        (["-L", "mqtt://h"], 1883),
        (["-L", "mqtts://h"], 8883),
        (["-L", "ws://h"], 8083),
        (["-L", "wss://h"], 8084),
        (["-L", "wss://h:99"], 99),
        (["-p", "7"], 7),
    ],
)
def test_ports(args: list[str], port: int) -> None:
    options, _ = resolve_url(options_of(*args))
    assert make_client(options).endpoint.port == port


def test_url() -> None:
    options, topic = resolve_url(options_of("-L", "mqtt://ada:p%40ss@h:1/a%20b/c"))
    assert topic == "a b/c"
    connect = connect_of(make_client(options))
    assert (connect.username, connect.password) == ("ada", b"p@ss")
    assert options.host == "h"
    options, topic = resolve_url(options_of("-L", "ws://h/path"))
    assert (topic, make_client(options).endpoint.path) == ("", "/path")
    options, _ = resolve_url(options_of("-L", "ws://h", "--ws-path", "/other"))
    assert make_client(options).endpoint.path == "/other"


@pytest.mark.parametrize(
    "args",
    [
        ["-L", "http://h"],
        ["-L", "mqtt://"],
        ["-L", "mqtt://h:x"],
        ["-L", "mqtt://h", "-h", "h"],
        ["-L", "mqtt://h", "--ws"],
    ],
)
def test_bad_urls(args: list[str]) -> None:
    with pytest.raises(click.UsageError):
        resolve_url(options_of(*args))


def test_session_options() -> None:
    kept = connect_of(make_client(options_of("-i", "me", "-c")))
    assert (kept.clean_start, kept.properties.session_expiry_interval) == (False, 0xFFFFFFFF)
    a_while = connect_of(make_client(options_of("-i", "me", "-c", "-x", "60")))
    assert a_while.properties.session_expiry_interval == 60
    fresh = connect_of(make_client(options_of("-i", "me", "-x", "∞")))
    assert (fresh.clean_start, fresh.properties.session_expiry_interval) == (True, 0xFFFFFFFF)
    old = connect_of(make_client(options_of("-i", "me", "-c", "-V", "311")))
    assert (old.protocol, old.clean_start) == (4, False)
    by_property = options_of("-i", "me", "-c", "-D", "connect", "session-expiry-interval", "9")
    assert by_property.expiry_s == 9
    prefixed = make_client(options_of("-I", "pre-"))
    assert prefixed.protocol.client_id == f"pre-{os.getpid()}"


def test_will() -> None:
    options = options_of(
        *("--will-topic", "w", "--will-payload", "gone", "--will-qos", "1", "--will-retain"),
        *("-D", "will", "will-delay-interval", "5", "-D", "will", "message-expiry-interval", "6"),
        *("-D", "will", "content-type", "text/plain"),
    )
    will = connect_of(make_client(options)).will
    assert will is not None
    assert (will.topic, will.payload, will.qos, will.retain) == ("w", b"gone", 1, True)
    assert (will.delay_s, will.expiry_s) == (5, 6)
    assert will.properties == forward_properties(Properties(content_type="text/plain"))


def test_passwords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"from file\r\n")
    in_file = options_of("-u", "ada", "--password-file", str(secret))
    assert connect_of(make_client(in_file)).password == b"from file"
    on_line = options_of("-u", "ada", "-P", "from line")
    assert connect_of(make_client(on_line)).password == b"from line"
    on_stdin = options_of("-u", "ada", "--password-file", "-")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"from stdin\nmore")))
    assert connect_of(make_client(on_stdin)).password == b"from stdin"
    absent = options_of("-u", "ada", "--password-file", str(tmp_path / "absent"))
    with pytest.raises(CommandFailed, match="cannot read"):
        make_client(absent)


def test_unusable_certificates(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        make_client(options_of("--cafile", str(tmp_path / "absent.pem")))


@pytest.mark.parametrize(
    "args",
    [
        ["-i", "a", "-I", "b"],
        ["-c"],
        ["-P", "x", "--password-file", "y"],
        ["-P", "x", "-V", "311"],
        ["--cert", "x"],
        ["--key", "x"],
        ["--will-payload", "x"],
        ["-V", "311", "-x", "5"],
        ["-V", "311", "-D", "publish", "content-type", "x"],
        ["-V", "31"],
        ["-x", "-2"],
        ["-x", "4294967296"],
        ["-k", "65536"],
        ["-p", "0"],
        ["-D", "publish"],
    ],
)
def test_contradictions(args: list[str]) -> None:
    with pytest.raises(click.UsageError):
        options_of(*args)


def test_each_field_has_its_option() -> None:
    @click.command()
    @mqtt_options
    def command(options: ClientOptions) -> None:
        pass

    named = [field for field in ClientOptions.__dataclass_fields__ if field != "properties"]
    assert [option.name for option in command.params] == named
