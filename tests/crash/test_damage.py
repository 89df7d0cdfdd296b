"""Damaged files under a real broker: it starts with everything, or refuses and says why.

Each round damages one file of a copy of a directory that a broker has left, by SIGTERM or by
kill -9, and starts a broker on it. Either all that was acknowledged is there; or the end of the
newest log is torn, and a line says what was lost; or it exits with 65, ``storage check`` finds
something, and after ``storage repair`` it starts.

``make faults ROUNDS=50`` runs more of them; ``PERDURE_SEED`` repeats the choices of a run.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from perdure.bench.ports import free_port
from perdure.storage.rocksdb import RocksDatabase
from tests.crash.client import Clients
from tests.support import packets
from tests.support.bounds import rounds_s
from tests.support.process import BrokerProcess, ProcessError, perdure_command
from tests.support.seeds import chosen_seed

ROUNDS = int(os.environ.get("PERDURE_FAULT_ROUNDS") or 4)
SEED = chosen_seed()
SMALL_BUFFERS = ("--set", "storage.rocksdb.write_buffer_bytes=1MiB", "--set", "sys.interval_s=0")
"""So that there are several logs, and table files."""

MESSAGES = 2_000
WINDOW = 100
KINDS = ("*.log", "*.log", "*.log", "*.sst", "MANIFEST-*", "CURRENT", "OPTIONS-*", "IDENTITY")
OWN = ("perdure.synced", "rocksdict-config.json")
ACTIONS = ("flip", "delete", "truncate", "tear", "zero", "swap", "append")


class Kept(NamedTuple):
    """What a directory holds."""

    payloads: frozenset[bytes]
    sessions: frozenset[str]


async def fill(path: Path, log: Path, *, first: int, kill: bool) -> None:
    """Let a broker take sessions and messages, and end."""
    port = free_port()
    broker = BrokerProcess(perdure_command(path, port, *SMALL_BUFFERS), port=port, log=log)
    await broker.start()
    clients = Clients(port)
    for number in range(10):
        subscriber = await clients.connect(f"sub-{first}-{number}")
        subscriber.send(packets.subscribe(1, [(f"t/{number}/#", 1)], protocol=4))
        await subscriber.expect(packets.SUBACK)
    publisher = await clients.connect("publisher")
    for number in range(MESSAGES):
        name, payload = f"t/{number % 11}/{number % 70}", b"%08d" % (first + number) + bytes(150)
        packet_id = number % WINDOW + 1
        data = packets.publish(name, payload, qos=1, packet_id=packet_id, dup=False, protocol=4)
        publisher.send(data)
        if packet_id == WINDOW:
            for _ in range(WINDOW):
                await publisher.expect(packets.PUBACK)
    if kill:
        # Nothing is written after the last sync: a session's end would be.
        await broker.kill()
        await clients.close()
    else:
        await clients.close()
        assert await broker.stop() == 0


async def kept(path: Path) -> Kept:
    """What is in a directory now."""
    database = RocksDatabase.open(path, read_only=True)
    try:
        page = await database.read(
            ["#"], after_offset=0, until_offset=database.last_offset, limit=10**6
        )
        sessions = frozenset([each.client_id async for each in database.sessions()])
        return Kept(frozenset(each.payload[:8] for each in page.messages), sessions)
    finally:
        database.close()


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Kept]]:
    """A directory after kill -9, and one after SIGTERM, with what they hold."""
    directory = tmp_path_factory.mktemp("damage")
    found = []
    for name, kill in (("killed", True), ("stopped", False)):
        path = directory / name
        asyncio.run(fill(path, directory / "log", first=0, kill=kill))
        (path / "admin.sock").unlink(missing_ok=True)
        looked_at = directory / f"{name}-again"
        shutil.copytree(path, looked_at)
        holds = asyncio.run(kept(looked_at))
        assert len(holds.payloads) == MESSAGES
        assert len(holds.sessions) == 11
        found.append((path, holds))
    return found


def damage(path: Path, chance: random.Random) -> str:
    """Damage one file; returns what was done."""
    kind = chance.choice((*KINDS, *OWN))
    files = sorted(path.glob(kind))
    file = chance.choice(files)
    data = bytearray(file.read_bytes())
    size = len(data)
    action = chance.choice(ACTIONS)
    start = chance.randrange(size) if size else 0
    end = chance.randrange(start, size) + 1 if size else 0
    if action == "flip" and size:
        data[start] ^= 1 << chance.randrange(8)
    elif action == "truncate":
        del data[start:]
    elif action == "tear":
        del data[max(0, size - chance.randrange(300)) :]
    elif action == "zero":
        data[start:end] = bytes(end - start)
    elif action == "append":
        data += chance.randbytes(100)
    if action == "delete":
        file.unlink()
    elif action == "swap":
        other = chance.choice(files)
        file.write_bytes(other.read_bytes())
        other.write_bytes(data)
    else:
        file.write_bytes(data)
    return f"{action} {file.name} [{start}:{end}] of {size}"


async def command(*arguments: str) -> tuple[int, str]:
    """Run ``perdure`` with arguments; its exit code and what it said."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "perdure", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


async def serve(path: Path) -> tuple[int, str]:
    """Start a broker and stop it; its exit code, 0 if it listened, and its log."""
    log, port = path.with_suffix(".txt"), free_port()
    log.unlink(missing_ok=True)
    broker = BrokerProcess(perdure_command(path, port, *SMALL_BUFFERS), port=port, log=log)
    try:
        await broker.start()
        code = 0
    except ProcessError:
        code = -1
    found = await broker.stop()
    assert found is not None
    return (found if code else 0), log.read_text()


async def repaired(path: Path, note: str) -> Kept:
    """Check, repair and start what was refused; returns what is left."""
    code, said = await command("storage", "check", "--data", str(path))
    assert code == 65, (note, said)
    code, said = await command("storage", "repair", "--yes", "--data", str(path))
    assert code == 0, (note, said)
    assert list(path.glob("damaged-*")), note
    code, log = await serve(path)
    assert code == 0, (note, log)
    left = await kept(path)
    code, said = await command("storage", "check", "--data", str(path))
    assert code == 0, (note, said)
    return left


async def survive(path: Path, holds: Kept, note: str) -> str:
    """Start a broker on a damaged directory; returns how it went."""
    code, log = await serve(path)
    said = ""
    assert "Traceback" not in log, (note, log)
    if code == 0:
        # Blocks of tables are read when somebody asks.
        if ".sst" in note:
            code, said = await command("storage", "check", "--data", str(path))
        if code == 0:
            left = await kept(path)
            if left == holds:
                return "all there"
            assert '"storage.end_lost"' in log, (note, len(left.payloads), len(left.sessions))
            return "the end is lost"
        assert code == 65, (note, said)
        assert ".sst" in said, (note, said)
    else:
        assert code == 65, (note, code, log)
        assert "storage repair" in log, (note, log)
    left = await repaired(path, note)
    assert left.payloads <= holds.payloads, note
    return f"refused; {len(left.payloads)} of {MESSAGES} messages repaired"


@pytest.mark.slow
@pytest.mark.timeout(rounds_s(ROUNDS))
async def test_damage_is_never_silent(tmp_path: Path, templates: list[tuple[Path, Kept]]) -> None:
    print(f"\n{ROUNDS} rounds, seed {SEED}")
    chance = random.Random(SEED)
    for number in range(ROUNDS):
        template, holds = chance.choice(templates)
        path = tmp_path / f"round-{number}"
        shutil.copytree(template, path)
        note = f"seed {SEED}, round {number}, {template.name}: {damage(path, chance)}"
        print(note, "->", await survive(path, holds, note))
        shutil.rmtree(path)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["newest", "all"])
async def test_logs_that_are_missing(
    tmp_path: Path, templates: list[tuple[Path, Kept]], which: str
) -> None:
    template, _ = templates[0]
    path = tmp_path / "d"
    shutil.copytree(template, path)
    logs = [log for log in sorted(path.glob("*.log")) if log.stat().st_size]
    for log in logs if which == "all" else logs[-1:]:
        log.unlink()
    if which == "all":
        (path / "perdure.synced").unlink()
    code, log_text = await serve(path)
    assert code == 65, log_text
    left = await repaired_or_empty(path)
    assert len(left.payloads) < MESSAGES


async def repaired_or_empty(path: Path) -> Kept:
    code, said = await command("storage", "repair", "--yes", "--data", str(path))
    assert code == 0, said
    assert "missing" in said
    code, log = await serve(path)
    assert code == 0, log
    return await kept(path)


@pytest.mark.slow
async def test_a_torn_end_is_a_power_cut(
    tmp_path: Path, templates: list[tuple[Path, Kept]]
) -> None:
    """Garbage behind the last sync is cut off; so is a part of the last sync, with an error."""
    template, holds = templates[0]
    path = tmp_path / "d"
    shutil.copytree(template, path)
    newest = [log for log in sorted(path.glob("*.log")) if log.stat().st_size][-1]
    data = newest.read_bytes()
    newest.write_bytes(data + b"garbage" * 7)
    code, log = await serve(path)
    assert code == 0, log
    assert '"storage.end_torn"' in log
    assert await kept(path) == holds
    shutil.rmtree(path)
    shutil.copytree(template, path)
    newest = path / newest.name
    newest.write_bytes(data[:-3])
    code, log = await serve(path)
    assert code == 0, log
    assert '"storage.end_lost"' in log
    left = await kept(path)
    assert left.payloads < holds.payloads
    assert len(left.payloads) >= MESSAGES - WINDOW
