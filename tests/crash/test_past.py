"""Clients that ask for what only the archive has, while everything that they depend on is killed.

A real broker drops generations every second, an archive reads them before, maintenance puts its
files together, and clients subscribe with ``replay-from``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from perdure.bench.ports import free_port
from tests import servers
from tests.crash.client import Client, Clients
from tests.spark.broker import Broker
from tests.support import packets
from tests.support.bounds import HANG_S
from tests.support.database_servers import PostgresServer, RedisServer
from tests.support.process import BrokerProcess, perdure_command
from tests.support.seeds import chosen_seed

pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")
pytest.importorskip("deltalake")
from perdure.pipeline.address import Remote
from perdure.pipeline.archive_state import load_state
from perdure.pipeline.cursor import CursorKeeper
from perdure.pipeline.jobs.archive import Archive, Wanted, execute_here
from perdure.pipeline.jobs.maintain import maintain
from perdure.pipeline.lake.lake import Lake
from perdure.pipeline.log_index import opened
from perdure.pipeline.options import ReadOptions
from perdure.pipeline.sinks.opening import open_sink

SEED = chosen_seed()
FAR = 4_000_000_000_000_000
TOPICS = ("t/a", "t/b", "t/c")
RARE = "rare/x"
TOKEN = "a-token-for-tests-that-is-long-enough"

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


class Running:
    """A broker, its archive, and who publishes.

    Attributes:
        sent: what was acknowledged, with its topic, in order.
    """

    def __init__(self, home: Path, kind: str, *sets: str, by_url: bool = False) -> None:
        self.home, self.kind = home, kind
        self.place = home / "to"
        self.place.mkdir()
        self.sent: list[tuple[str, int]] = []
        self.warnings: list[str] = []
        port, http_port = free_port(), free_port()
        if by_url:
            (home / "token").write_text(f"{TOKEN}\n")
            sets += (f"http.bind=127.0.0.1:{http_port}", f"http.token_file={home / 'token'}")
        settings = (
            *("retention.time_s=1", "retention.generation_time_s=1"),
            *("retention.check_interval_s=1", "retention.keep_for=archive"),
            *(f"pipeline.tables.place={self.place}", f"pipeline.tables.format={kind}"),
            *("replay.page_messages=20", "replay.archive=on", *sets),
        )
        arguments = [part for each in settings for part in ("--set", each)]
        command = perdure_command(home / "db", port, *arguments)
        self.process = BrokerProcess(command, port=port, log=home / "log")
        self.options = ReadOptions(str(home / "db"))
        if by_url:
            remote = Remote(f"http://127.0.0.1:{http_port}", TOKEN)
            self.options = ReadOptions("", remote=remote)
        self.clients = Clients(port)

    def _archive_round(self, *, tidies: bool) -> None:
        if not self.place.exists():
            return  # it is away for the archive, too
        with opened(self.options, patient=True) as index:
            identity = index.database_id
        lake = Lake(str(self.place), self.kind)
        sink = open_sink(lake, identity)
        try:
            job = Archive(
                self.options,
                sink,
                Wanted(format=self.kind, catalog=""),
                directory=self.place,
                execute=execute_here,
                on_position=CursorKeeper(
                    self.options, "archive", str(self.place), warn=self.warnings.append
                ),
            )
            job.run_round()
            state = load_state(self.place)
            if tidies and state is not None:
                for spec in state.tables:
                    maintain(sink, spec, before_us=FAR)
        finally:
            sink.close()

    async def archive(self, *, tidies: bool = False) -> None:
        await asyncio.to_thread(self._archive_round, tidies=tidies)

    @contextlib.asynccontextmanager
    async def archiving(self) -> AsyncIterator[None]:
        """Rounds of the archive, with maintenance, one after the other."""
        ended = asyncio.Event()

        async def rounds() -> None:
            number = 0
            while not ended.is_set():
                number += 1
                await self.archive(tidies=number % 3 == 0)
                await asyncio.sleep(0.3)

        task = asyncio.create_task(rounds())
        try:
            yield
        finally:
            ended.set()
            await task

    async def publish(self, count: int, *, pause_s: float = 0.004) -> None:
        publisher = await self.clients.connect("p")
        for _ in range(count):
            number = len(self.sent) + 1
            topic = RARE if number % 97 == 0 else TOPICS[number % 3]
            packet_id = 1 + number % 60_000
            publisher.send(
                packets.publish(
                    topic, b"%d" % number, qos=1, packet_id=packet_id, dup=False, protocol=4
                )
            )
            await publisher.expect(packets.PUBACK)
            self.sent.append((topic, number))
            await asyncio.sleep(pause_s)

    def told(self, event: str) -> list[str]:
        lines = (self.home / "log").read_text().splitlines()
        return [line for line in lines if event in line]

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(HANG_S):
            while not condition():
                await asyncio.sleep(0.05)

    def readers(self) -> list[int]:
        """Processes that were begun to read the archive, and run."""
        begun = [re.search(r"\bpid\W+(\d+)", line) for line in self.told("archive.reader_started")]
        return [int(each[1]) for each in begun if each and Path(f"/proc/{each[1]}").exists()]

    def kill_reader(self) -> int:
        killed = 0
        for pid in self.readers():
            with_pid = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"perdure.pipeline.past" in with_pid:
                os.kill(pid, signal.SIGKILL)
                killed += 1
        return killed


class Reader:
    """A durable client that takes a little at a time, whatever happens to its broker.

    Args:
        running: the broker.
        name: client identifier.
        topic_filter: what it wants.
    """

    def __init__(self, running: Running, name: str, topic_filter: str) -> None:
        self.running, self.name, self.filter = running, name, topic_filter
        self.numbers: list[int] = []
        self.again = 0
        self._is_new = True

    async def _connect(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.running.process.port))
        self.running.clients._made.append(client)
        client.send(packets.connect(self.name, protocol=5, receive_maximum=16))
        present, code = packets.read_connack(await client.expect(packets.CONNACK))
        assert not code
        if self._is_new or not present:
            assert self._is_new or not self.numbers
            wish = [("replay-from", "0")]
            client.send(packets.subscribe(1, [(self.filter, 1)], protocol=5, user=wish))
        return client

    async def take(self, count: int) -> None:
        """Take messages until there are so many different ones."""
        while len(self.numbers) < count:
            try:
                client = await self._connect()
                await self._take(client, count)
                await client.close()
            except (OSError, AssertionError) as error:
                if isinstance(error, AssertionError) and "closed" not in str(error):
                    raise
                await asyncio.sleep(0.05)

    async def _take(self, client: Client, count: int) -> None:
        while len(self.numbers) < count:
            packet = await client.take()
            if packet is None:
                return
            if packet.kind == packets.SUBACK:
                assert packets.read_suback(packet, protocol=5) == [1]
                self._is_new = False
                continue
            if packet.kind != packets.PUBLISH:
                continue
            found = packets.read_publish(packet, protocol=5)
            number = int(found.payload)
            if self.numbers and number <= self.numbers[-1]:
                # Sent before, and not acknowledged when the broker died.
                assert found.dup, (number, self.numbers[-5:])
                assert number in self.numbers
                self.again += 1
            else:
                self.numbers.append(number)
            client.send(packets.acknowledgement(packets.PUBACK, found.packet_id))


@pytest.fixture
async def made() -> AsyncIterator[list[Running]]:
    found: list[Running] = []
    yield found
    for each in found:
        await each.clients.close()
        await each.process.stop()


async def history(running: Running, count: int = 900) -> None:
    """Messages that only the archive has, and some that the log has."""
    await running.process.start()
    async with running.archiving():
        await running.publish(count)
        await running.until(lambda: len(running.told("generation.dropped")) >= 3)
    await running.archive()


@pytest.mark.parametrize("kind", ["iceberg", "parquet"])
async def test_a_client_reads_across_the_seam(
    kind: str, tmp_path: Path, made: list[Running]
) -> None:
    """The seam moves meanwhile, and files are put together."""
    running = Running(tmp_path, kind)
    made.append(running)
    await history(running)
    every, rare = Reader(running, "every", "#"), Reader(running, "rare", "rare/#")
    await every.take(50)
    async with running.archiving(), asyncio.TaskGroup() as group:
        group.create_task(running.publish(600))
        group.create_task(every.take(1_500))
        group.create_task(rare.take(1_500 // 97))
    assert every.numbers == [number for _, number in running.sent]
    assert rare.numbers == [number for topic, number in running.sent if topic == RARE]
    assert running.readers()
    assert running.warnings == []
    for event in ("archive.away", "archive.incomplete", "replay.cut_short"):
        assert running.told(event) == []


@pytest.mark.parametrize("what", ["broker", "reader", "both", "archive"])
async def test_progress_survives(what: str, tmp_path: Path, made: list[Running]) -> None:
    """Kills while the archive is read, and an archive that is away for a while."""
    print(f"\nrepeat with PERDURE_SEED={SEED}")
    choose = random.Random(f"{SEED} {what}")
    running = Running(tmp_path, "iceberg", "storage.durability=os")
    made.append(running)
    await history(running)
    reader = Reader(running, "r", "t/#")
    wanted = [number for topic, number in running.sent if topic != RARE]
    task = asyncio.create_task(reader.take(len(wanted)))
    kills = 0
    for _ in range(6):
        goal = len(reader.numbers) + choose.randrange(1, 120)
        await running.until(lambda goal=goal: len(reader.numbers) >= goal or task.done())
        if task.done():
            break
        if what in {"reader", "both"}:
            kills += running.kill_reader()
        if what in {"broker", "both"}:
            await running.process.kill()
            kills += 1
            await running.process.start()
        if what == "archive":
            kills += 1
            running.place.rename(tmp_path / "away")
            running.kill_reader()  # it has files open
            await asyncio.sleep(choose.random() * 2)
            (tmp_path / "away").rename(running.place)
    async with asyncio.timeout(HANG_S):
        await task
    assert kills > 1
    assert reader.numbers == wanted
    if what == "archive":
        assert running.told("archive.away")
        await running.until(lambda: running.told("archive.back"))


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("redis", marks=pytest.mark.redis),
        pytest.param("postgres", marks=pytest.mark.postgres),
    ],
)
async def test_a_log_in_a_server_has_one_too(
    backend: str, tmp_path: Path, made: list[Running]
) -> None:
    """Archived over HTTP; the broker is killed in the middle."""
    pytest.importorskip("uvicorn")
    kind = RedisServer if backend == "redis" else partial(PostgresServer, durable=False)
    with kind() as server:
        settings = (f"storage.backend={backend}", f"storage.{backend}.url={server.url}")
        running = Running(tmp_path, "parquet", *settings, by_url=True)
        made.append(running)
        await _kill_in_the_middle(running)
        await running.clients.close()
        await running.process.stop()


async def _kill_in_the_middle(running: Running) -> None:
    await history(running)
    reader = Reader(running, "r", "#")
    await reader.take(200)
    assert running.readers()
    await running.process.kill()
    async with running.archiving():
        await running.process.start()
        await running.publish(100)
        await reader.take(1_000)
    assert reader.numbers == [number for _, number in running.sent]
    for event in ("archive.away", "archive.incomplete", "replay.cut_short"):
        assert running.told(event) == []


@pytest.mark.kafka
async def test_nodes_of_a_cluster_read_it_each_by_itself(tmp_path: Path) -> None:
    """A session moves to another node while it stands in the archive."""
    pytest.importorskip("uvicorn")
    pytest.importorskip("confluent_kafka")
    name, place = servers.kafka_topic(), tmp_path / "to"
    with ExitStack() as stack:
        nodes = []
        for number in (1, 2):
            home = tmp_path / f"n{number}"
            home.mkdir()
            settings = {
                "node.name": f"n{number}",
                "cluster.name": name,
                "cluster.kafka": servers.kafka().servers,
                "retention.time_s": "1",
                "retention.generation_time_s": "1",
                "retention.check_interval_s": "1",
                "retention.keep_for": "archive",
                "pipeline.tables.place": str(place),
                "pipeline.tables.format": "parquet",
                "replay.archive": "on",
                "replay.page_messages": "20",
            }
            nodes.append(stack.enter_context(Broker(home, hides=False, settings=settings)))
        command = [sys.executable, "-m", "perdure", "pipeline", "archive", "--to", str(place)]
        command += ["--url", ",".join(each.url for each in nodes), "--format", "parquet", "--once"]
        command += ["--token-file", str(nodes[0].token_file)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        clients = [Clients(each.port) for each in nodes]
        publisher = await clients[1].connect("p")
        sent = 0
        for _ in range(4):
            for _ in range(100):
                sent += 1
                data = packets.publish(
                    "t", b"%d" % sent, qos=1, packet_id=sent, dup=False, protocol=4
                )
                publisher.send(data)
                await publisher.expect(packets.PUBACK)
            await asyncio.sleep(1.2)
            archive = await asyncio.create_subprocess_exec(*command, env=environment)
            assert await archive.wait() == 0
        async with asyncio.timeout(HANG_S):
            while any(each.log.read_text().count("generation.dropped") < 3 for each in nodes):
                await asyncio.sleep(0.2)
        found: list[int] = []
        for number in (0, 1):
            client = Client(*await asyncio.open_connection("127.0.0.1", nodes[number].port))
            clients[number]._made.append(client)
            client.send(packets.connect("r", protocol=5, receive_maximum=16))
            await client.expect(packets.CONNACK)
            if not number:
                wish = [("replay-from", "0")]
                client.send(packets.subscribe(1, [("t", 1)], protocol=5, user=wish))
            while len(found) < (150, sent)[number]:
                packet = await client.take()
                assert packet is not None
                if packet.kind == packets.PUBLISH:
                    message = packets.read_publish(packet, protocol=5)
                    if int(message.payload) not in found:
                        found.append(int(message.payload))
                    client.send(packets.acknowledgement(packets.PUBACK, message.packet_id))
        assert found == list(range(1, sent + 1))
        for each in nodes:
            log = each.log.read_text()
            assert "archive.reader_started" in log
            assert "archive.away" not in log
            assert "archive.incomplete" not in log
        for made_clients in clients:
            await made_clients.close()


async def test_without_the_archive_it_begins_where_the_log_does(
    tmp_path: Path, made: list[Running]
) -> None:
    running = Running(tmp_path, "parquet", "replay.archive=off")
    made.append(running)
    await history(running, 500)
    reader = Reader(running, "r", "#")
    await running.publish(5)
    async with asyncio.timeout(HANG_S):
        while not reader.numbers or reader.numbers[-1] < len(running.sent):
            await reader.take(len(reader.numbers) + 1)
    assert reader.numbers == list(range(reader.numbers[0], len(running.sent) + 1))
    assert reader.numbers[0] > 1
    assert running.readers() == []
