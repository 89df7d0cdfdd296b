"""A broker that drops generations every second, and an archive that comes by when it likes."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from perdure.bench.ports import free_port
from tests.crash.client import Client, Clients
from tests.support import packets
from tests.support.bounds import HANG_S
from tests.support.process import BrokerProcess, perdure_command
from tests.support.seeds import chosen_seed

pytest.importorskip("pyarrow")
pytest.importorskip("uvicorn")
import pyarrow.parquet as pq

from perdure.pipeline.address import Remote
from perdure.pipeline.archive_state import ArchiveState, load_state
from perdure.pipeline.cursor import CursorKeeper
from perdure.pipeline.jobs.archive import Archive, Wanted, execute_here
from perdure.pipeline.jobs.archive_files import WriteTask, Written
from perdure.pipeline.log_index import opened
from perdure.pipeline.options import ReadOptions
from perdure.pipeline.sinks.parquet import ParquetSink

SEED = chosen_seed()
SECONDS = 5.0
TOKEN = "a-token-for-tests-that-is-long-enough"

pytestmark = [pytest.mark.slow]


class Running:
    """A broker, with what reads it."""

    def __init__(self, home: Path, *, keeps: bool, is_remote: bool) -> None:
        self.port, http_port = free_port(), free_port()
        self.home = home
        self.warnings: list[str] = []
        (home / "token").write_text(f"{TOKEN}\n")
        sets = [
            *("retention.time_s=1", "retention.generation_time_s=1"),
            *("retention.check_interval_s=1", f"http.bind=127.0.0.1:{http_port}"),
            f"http.token_file={home / 'token'}",
            *(("retention.keep_for=archive",) if keeps else ()),
        ]
        arguments = [part for each in sets for part in ("--set", each)]
        command = perdure_command(home / "db", self.port, *arguments)
        self.process = BrokerProcess(command, port=self.port, log=home / "log")
        remote = Remote(f"http://127.0.0.1:{http_port}", TOKEN) if is_remote else None
        self.options = ReadOptions(
            "" if is_remote else str(home / "db"), remote=remote, skip_data_loss=True
        )

    def archive(self, pause: Any) -> Archive:
        def execute(options: ReadOptions, task: WriteTask) -> list[Written]:
            pause()
            written = execute_here(options, task)
            pause()
            return written

        with opened(self.options, patient=True) as index:
            sink = ParquetSink(self.home / "to", index.database_id)
        return Archive(
            self.options,
            sink,
            Wanted(learns=False, has_fields=False, format="parquet"),
            directory=self.home / "to",
            execute=execute,
            on_position=CursorKeeper(self.options, "archive", "here", warn=self.warnings.append),
        )

    def archived(self) -> list[int]:
        files = (self.home / "to").glob("messages/offsets-*/*.parquet")
        tables = [pq.read_table(file, columns=["payload"], partitioning=None) for file in files]
        return sorted(int(row["payload"]) for table in tables for row in table.to_pylist())

    def state(self) -> ArchiveState:
        state = load_state(self.home / "to")
        assert state is not None
        return state

    def generations(self) -> list[int]:
        with opened(self.options, patient=True) as index:
            return [info.generation for info in index.generations()]


async def publish(client: Client, numbers: list[int]) -> None:
    """A message each hundredth of a second, until cancelled."""
    while True:
        number = len(numbers) + 1
        packet_id = 1 + number % 60_000
        client.send(
            packets.publish("t", b"%d" % number, qos=1, packet_id=packet_id, dup=False, protocol=4)
        )
        await client.expect(packets.PUBACK)
        numbers.append(number)
        await asyncio.sleep(0.01)


@pytest.fixture
async def clients() -> AsyncIterator[list[Clients]]:
    made: list[Clients] = []
    yield made
    for each in made:
        await each.close()


@pytest.mark.parametrize(
    ("keeps", "is_remote"),
    [(True, True), (False, False)],
    ids=["kept over http", "not kept"],
)
async def test_nothing_is_missing_in_silence(
    keeps: bool, is_remote: bool, tmp_path: Path, clients: list[Clients]
) -> None:
    print(f"\nrepeat with PERDURE_SEED={SEED}")
    choose = random.Random(f"{SEED} {keeps} {is_remote}")
    (tmp_path / "to").mkdir()
    running = Running(tmp_path, keeps=keeps, is_remote=is_remote)
    numbers: list[int] = []
    gaps = 0
    try:
        await running.process.start()
        clients.append(Clients(running.port))
        publisher = await clients[0].connect("p")
        publishing = asyncio.create_task(publish(publisher, numbers))

        def pause() -> None:
            # A reader that takes its time, now and then more than retention does.
            time.sleep(choose.choice([0, 0.3, 2.5]))

        archive = await asyncio.to_thread(running.archive, pause)
        end = asyncio.get_running_loop().time() + SECONDS
        while asyncio.get_running_loop().time() < end:
            gaps += (await asyncio.to_thread(archive.run_round)).gap is not None
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        last = await asyncio.to_thread(running.archive, lambda: None)
        while not (done := await asyncio.to_thread(last.run_round)).is_last:
            gaps += done.gap is not None
        gaps += done.gap is not None
        # Retention comes by each second; what was archived may go now.
        async with asyncio.timeout(HANG_S):
            while (await asyncio.to_thread(running.generations))[0] == 1:
                await asyncio.sleep(0.2)
    finally:
        await running.process.stop()
    found = running.archived()
    assert found == sorted(set(found))
    assert running.warnings == []
    missing = sorted(set(numbers) - set(found))
    recorded = running.state().gaps
    if keeps:
        assert (missing, recorded, gaps) == ([], (), 0)
    else:
        assert bool(missing) <= bool(recorded), missing
        assert len(recorded) >= gaps
        log = (tmp_path / "log").read_text()
        assert "retention.could_not_wait" not in log
