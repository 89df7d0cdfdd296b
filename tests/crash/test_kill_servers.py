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

from perdure.bench.ports import free_port
from tests.support.bounds import rounds_s
from tests.support.database_servers import PostgresServer, RedisServer
from tests.support.kill_rounds import KillRounds
from tests.support.process import BrokerProcess, perdure_command
from tests.support.redis_cluster import RedisCluster
from tests.support.seeds import chosen_seed

ROUNDS = int(os.environ.get("PERDURE_CRASH_ROUNDS") or 2)
SEED = chosen_seed()

SERVER_UNAVAILABLE = 0x88

REDIS_MARKS = [pytest.mark.redis]
BACKENDS = [
    pytest.param("redis", marks=REDIS_MARKS),
    pytest.param("redis-cluster", marks=REDIS_MARKS),
    pytest.param("postgres", marks=pytest.mark.postgres),
]


Server = PostgresServer | RedisServer | RedisCluster


def new_server(backend: str) -> Server:
    """A server, not started."""
    if backend == "postgres":
        return PostgresServer()
    return RedisServer() if backend == "redis" else RedisCluster()


def options(backend: str, url: str) -> list[str]:
    """Command-line options of a broker on a server."""
    backend = backend.partition("-")[0]
    return ["--set", f"storage.backend={backend}", "--set", f"storage.{backend}.url={url}"]


async def kill_now_and_then(server: Server, times: int, seed: str) -> None:
    """kill -9 a server and start it again, at random instants."""
    chance = random.Random(f"{seed} server")
    for _ in range(times):
        await asyncio.sleep(chance.uniform(0.2, 1.5))
        victim = chance.choice(server.nodes) if isinstance(server, RedisCluster) else server
        await asyncio.to_thread(victim.kill)
        await asyncio.sleep(chance.uniform(0.0, 0.5))
        await asyncio.to_thread(victim.start)


class ServerRounds(KillRounds):
    """Rounds in which the broker may have nothing to serve with."""

    forgives = frozenset((SERVER_UNAVAILABLE,))


@pytest.mark.slow
@pytest.mark.timeout(rounds_s(ROUNDS))
@pytest.mark.parametrize("backend", BACKENDS)
async def test_nothing_acknowledged_is_lost(tmp_path: Path, backend: str) -> None:
    print(f"\n{backend}: {ROUNDS} rounds; repeat with PERDURE_SEED={SEED}")
    with new_server(backend) as server:
        port = free_port()
        command = perdure_command(tmp_path / "data", port, *options(backend, server.url))
        broker = BrokerProcess(command, port=port, log=tmp_path / "broker.log")
        killing = asyncio.create_task(kill_now_and_then(server, ROUNDS, SEED))
        try:
            outcome = await ServerRounds(broker, seed=SEED, say=print).run(ROUNDS)
        finally:
            killing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await killing
        assert not outcome.failures, "\n".join([f"seed {SEED}", *outcome.failures])
        assert broker.kill_count == ROUNDS
        assert outcome.published > 0
        assert outcome.delivered > 0
