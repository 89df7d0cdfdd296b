"""Bans: by the command line on a running broker, and on the wire (MQTT 5.0 section 3.2.2.2)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.bounds import HANG_S
from tests.wire.packets import V3, V5, Kind, Prop, Reason, Will
from tests.wire.peer import SUBJECT
from tests.wire.process_broker import ProcessBroker

pytestmark = [
    pytest.mark.skipif(SUBJECT != "perdure", reason="bans are Perdure's own"),
    pytest.mark.sockets(only=True),  # the command line wants a process
    pytest.mark.alone,  # and tells what it did to the clients of the node that was asked
]


def bans(broker: ProcessBroker, *args: str) -> str:
    """Run ``perdure bans``; returns what it printed."""
    command = [sys.executable, "-m", "perdure", "bans", args[0]]
    command += ["--data", str(broker.directory / "data"), *args[1:]]
    done = subprocess.run(command, check=True, capture_output=True, timeout=HANG_S)
    return done.stdout.decode()


def test_a_ban_closes_refuses_and_survives_a_kill(broker: ProcessBroker, name: str) -> None:
    reader = broker.connect(f"{name}-reader")
    reader.subscribe((f"{name}/#", 1))
    new = broker.connect(name, will=Will(topic=f"{name}/gone", payload=b"x", qos=1))
    old = broker.connect(f"{name}-old", version=4)
    whom = ["--client-id", name, "--client-id", f"{name}-old", "--reason", "floods"]
    printed = bans(broker, "add", *whom)
    assert [line.split("\t")[-1] for line in printed.splitlines()] == ["1", "1"]
    left = new.receive()
    assert left is not None
    assert (left.kind, left.reason) == (Kind.DISCONNECT, 0x98)
    assert (Prop.REASON_STRING, "banned") in left.properties
    new.expect_closed()
    old.expect_closed()
    reader.expect_nothing()
    broker.kill9()
    for version, reason in ((5, Reason.BANNED), (4, 5)):
        peer = broker.peer(version)
        client_id = name if version == 5 else f"{name}-old"
        peer.send((V5 if version == 5 else V3).connect(client_id))
        peer.expect_refused_connect(reason)
    assert bans(broker, "list").count("floods") == 2
    bans(broker, "remove", *whom[:4])
    broker.connect(name)
    broker.connect(f"{name}-old", version=4)


def test_a_banned_network_and_user(broker: ProcessBroker, name: str) -> None:
    bans(broker, "add", "--username", name)
    peer = broker.peer()
    peer.send(V5.connect(name, username=name, password="x"))
    peer.expect_refused_connect(Reason.BANNED)
    bans(broker, "add", "--address", "127.0.0.0/8", "--until", "1h")
    peer = broker.peer()
    peer.send(V5.connect(f"{name}-other"))
    peer.expect_refused_connect(Reason.BANNED)
    bans(broker, "remove", "--address", "127.0.0.1/8", "--username", name)
    broker.connect(f"{name}-other", username=name, password="x")
