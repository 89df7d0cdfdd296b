"""kill -9 of the broker, and of the server that has its state, at random instants.

``PERDURE_SEED`` repeats the choices of a run, ``PERDURE_CRASH_ROUNDS`` says how many rounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from pathlib import Path

import pytest
from tests import servers

from perdure.bench.servers.postgres import PostgresServer
from perdure.bench.servers.redis import RedisServer
from perdure.testing.kill_rounds import KillRounds
from perdure.testing.process import BrokerProcess, free_port, perdure_command

ROUNDS = int(os.environ.get("PERDURE_CRASH_ROUNDS") or 3)
SEED = os.environ.get("PERDURE_SEED") or str(random.SystemRandom().randrange(10**9))

SERVER_UNAVAILABLE = 0x88

BACKENDS = [
    pytest.param(
        "redis",
        marks=[
            pytest.mark.redis,
            pytest.mark.skipif(not servers.has_redis(), reason="Redis is not installed"),
        ],
    ),
    pytest.param(
        "postgres",
        marks=[
            pytest.mark.postgres,
            pytest.mark.skipif(not servers.has_postgres(), reason="PostgreSQL is not installed"),
        ],
    ),
]


def options(backend: str, url: str) -> list[str]:
    """Command-line options of a broker on a server."""
    return ["--set", f"storage.backend={backend}", "--set", f"storage.{backend}.url={url}"]


async def kill_now_and_then(server: PostgresServer | RedisServer, times: int, seed: str) -> None:
    """kill -9 a server and start it again, at random instants."""
    chance = random.Random(f"{seed} server")
    for _ in range(times):
        await asyncio.sleep(chance.uniform(0.2, 1.5))
        await asyncio.to_thread(server.kill)
        await asyncio.sleep(chance.uniform(0.0, 0.5))
        await asyncio.to_thread(server.start)


class ServerRounds(KillRounds):
    """Rounds in which the broker may have nothing to serve with."""

    forgives = frozenset((SERVER_UNAVAILABLE,))


@pytest.mark.slow
@pytest.mark.timeout(90 + 15 * ROUNDS)
@pytest.mark.parametrize("kills_server", [False, True], ids=["broker", "both"])
@pytest.mark.parametrize("backend", BACKENDS)
async def test_nothing_acknowledged_is_lost(
    tmp_path: Path, backend: str, kills_server: bool
) -> None:
    print(f"\n{backend}: {ROUNDS} rounds; repeat with PERDURE_SEED={SEED}")
    with RedisServer() if backend == "redis" else PostgresServer() as server:
        port = free_port()
        command = perdure_command(tmp_path / "data", port, *options(backend, server.url))
        broker = BrokerProcess(command, port=port, log=tmp_path / "broker.log")
        killing = None
        if kills_server:
            killing = asyncio.create_task(kill_now_and_then(server, ROUNDS, SEED))
        try:
            outcome = await ServerRounds(broker, seed=SEED, say=print).run(ROUNDS)
        finally:
            if killing is not None:
                killing.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await killing
        assert not outcome.failures, "\n".join([f"seed {SEED}", *outcome.failures])
        assert broker.kill_count == ROUNDS
        assert outcome.published > 0
        assert outcome.delivered > 0
