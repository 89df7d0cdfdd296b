"""A backup that is taken under load, restored elsewhere: the promises up to its position.

Real processes. Publishers of QoS 1 and 2, subscribers that are there and others that are not; the
broker is backed up by the command and killed; another one starts on what was restored, and the same
clients go to it.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from perdure.bench.ports import free_port
from tests.support.bounds import HANG_S
from tests.support.delivery import Ledger, Receipts, Verdict, audit
from tests.support.peer_connection import PeerConnection
from tests.support.peers import Publisher, Subscriber
from tests.support.process import BrokerProcess, perdure_command

TOPICS = tuple(f"load/{site}/{metric}" for site in range(3) for metric in "abc")
FRESH = "load/9/b"
WINDOW = 40
PLANS = (
    ("there-all", 5, [("load/#", 2)], True),
    ("there-one", 4, [("load/+/a", 1)], True),
    ("away-all", 4, [("load/#", 2)], False),
    ("away-one", 5, [("load/+/b", 1), ("load/1/c", 2)], False),
)


def now_us() -> int:
    return time.time_ns() // 1_000


async def perdure(*args: object) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "perdure", *map(str, args), "--json", stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(out)
    return found


async def until(condition: Any) -> None:
    async with asyncio.timeout(HANG_S):
        while not condition():
            await asyncio.sleep(0.01)


def acknowledged_by(ledger: Ledger, moment_us: int) -> Ledger:
    """The same, when only what was acknowledged by a moment counts."""
    for flow in ledger.flows.values():
        flow.acknowledged_at_us = [
            at_us if at_us <= moment_us else 0 for at_us in flow.acknowledged_at_us
        ]
    return ledger


@pytest.mark.slow
async def test_the_promises_hold_up_to_the_position(tmp_path: Path) -> None:
    port, chance, ledger = free_port(), random.Random("backup"), Ledger()
    broker = BrokerProcess(
        perdure_command(tmp_path / "data", port), port=port, log=tmp_path / "broker.log"
    )
    await broker.start()
    takers = {
        name: PeerConnection(
            Subscriber(name, filters, protocol=protocol, chance=chance, hold=0.1), port
        )
        for name, protocol, filters, _ in PLANS
    }
    publishers: list[PeerConnection[Publisher]] = []
    is_loading = True

    def fill(connection: PeerConnection[Publisher]) -> None:
        peer = connection.peer
        if is_loading and peer.is_connected:
            fresh = []
            while len(peer.under_way) < WINDOW:
                fresh.append(peer.publish(chance.choice(TOPICS), qos=chance.choice((1, 2))))
            connection.write(b"".join(fresh))

    connection: PeerConnection[Any]
    try:
        await until(lambda: all(each.peer.is_subscribed for each in takers.values()))
        for name, _, _, is_there in PLANS:
            if not is_there:
                takers[name].is_wanted = False
                takers[name].cut()
        for number, protocol in enumerate((4, 5)):
            publisher = Publisher(f"pub-{number}", protocol=protocol, ledger=ledger, clock=now_us)
            connection = PeerConnection(publisher, port)
            connection._after = lambda connection=connection: fill(connection)
            publishers.append(connection)
        await until(lambda: all(each.peer.is_connected for each in publishers))
        for connection in publishers:
            fill(connection)
        await until(lambda: ledger.acknowledged_count > 300)
        begun_us = now_us()
        made = await perdure("backup", "--data", tmp_path / "data", "--to", tmp_path / "b")
        enough = ledger.acknowledged_count + 300
        await until(lambda: ledger.acknowledged_count > enough)
        is_loading = False
        await broker.kill()
        for connection in (*publishers, *takers.values()):
            connection.is_wanted = False
            connection.peer.expects_new = True
        before: dict[str, Receipts] = {}
        for name, taker in takers.items():
            before[name] = taker.peer.receipts
            taker.peer.receipts = Receipts(name, taker.peer.filters)
            taker.peer.hold = 0.0
        found = await perdure("restore", "--from", tmp_path / "b", "--data", tmp_path / "elsewhere")
        assert found["position"] == made["position"]
        assert found["sessions"] == len(PLANS) + len(publishers)
        broker = BrokerProcess(
            perdure_command(tmp_path / "elsewhere", port), port=port, log=tmp_path / "other.log"
        )
        await broker.start()
        for connection in (*publishers, *takers.values()):
            connection.is_wanted = True
        await until(lambda: all(each.peer.is_connected for each in (*publishers, *takers.values())))
        # New messages come behind what is owed, under identifiers of another time.
        fresh = Ledger()
        for connection in publishers:
            connection.peer._ledger = fresh
            connection.write(
                b"".join(connection.peer.publish(FRESH, qos=qos) for qos in (1, 2) * 20)
            )
        await until(lambda: fresh.acknowledged_count == 40 * len(publishers))

        for taker in takers.values():
            if taker.peer.receipts.granted(FRESH) > 0:
                arrivals = taker.peer.receipts.arrivals
                await until(
                    lambda arrivals=arrivals: all(
                        [number for number, _ in arrivals[publisher, FRESH]] == list(range(1, 41))
                        for publisher, _ in fresh.flows
                    )
                )
        await broker.stop()
    finally:
        await asyncio.gather(*(each.close() for each in (*publishers, *takers.values())))
        await broker.stop()
    breaches = [breach for each in (*publishers, *takers.values()) for breach in each.peer.breaches]
    assert breaches == []
    promised = acknowledged_by(ledger, begun_us)
    verdicts: list[Verdict] = []
    for name, _, _, is_there in PLANS:
        receipts = takers[name].peer.receipts
        for key in fresh.flows:
            receipts.arrivals.pop(key, None)
        after = audit(promised, receipts, strict_order=True)
        if is_there:
            after.lost = 0  # what it had is not owed again
            for key, arrivals in before[name].arrivals.items():
                receipts.arrivals[key] = arrivals + receipts.arrivals[key]
            assert audit(promised, receipts).lost == 0
        verdicts.append(after)
    assert [each.breaches for each in verdicts] == [0] * len(PLANS), [
        each.examples for each in verdicts
    ]
    assert all(each.received > 50 for each in verdicts[2:])
    check = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "perdure", "storage", "check", "--data", str(tmp_path / "elsewhere")
    )
    assert await check.wait() == 0
