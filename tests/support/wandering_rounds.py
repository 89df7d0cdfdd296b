"""More of what clients rely on wherever they go, and nodes that come from a peer's checkpoint.

Subscriptions with content filters, said in SUBSCRIBE and stored, replays that begin in the middle
and are taken up at any node, bans that a node confirms as it dies. A node whose disk is lost joins
by a checkpoint, while it, the fetching or the peer that writes it is killed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, final

from perdure.storage.rocksdb.directory import RESTORING_NAME
from tests.support import packets
from tests.support.bounds import HANG_S
from tests.support.cluster_processes import ClusterNodeProcess, ClusterProcesses
from tests.support.cluster_rounds import FAULTS, RECOVERY_TIMEOUT_S, TICK_S, ClusterRounds
from tests.support.delivery import Receipts, Stamp
from tests.support.kill_rounds import Outcome, _now_us
from tests.support.packets import Packet
from tests.support.peer_connection import PeerConnection
from tests.support.peers import Peer, Publisher, Subscriber
from tests.support.process import ProcessError

ALL_FAULTS: Final = (*FAULTS, "join_by_checkpoint", "ban")

OUTCASTS: Final = 3
FILTER_ID: Final = "odd"
CONTENT: Final = '{"$property.odd": "1"}'
BANNED: Final = frozenset({0x8A, 5})
REPLAYS_MAX: Final = 3
"""Of a chapter."""

_US_PER_MS: Final = 1000
_TEMPORARY: Final = frozenset({69, 75})
"""What a command ends with whose node is away, or has no Kafka."""


def _labels(stamp: Stamp) -> Sequence[tuple[str, str]]:
    return [("odd", "1")] if stamp.number % 2 else []


def _protocol_of(publisher: str) -> int:
    """Of a publisher by its name (``pub-CHAPTER-PLACE``)."""
    return 5 if int(publisher.rpartition("-")[2]) % 2 else 4


def _is_labelled(publisher: str, number: int) -> bool:
    return _protocol_of(publisher) == 5 and number % 2 == 1


@final
class Outcast(Peer):
    """Asks to be let in once, and remembers the answer.

    Attributes:
        code: of CONNACK; None = none came.
    """

    def __init__(self, client_id: str, *, protocol: int) -> None:
        super().__init__(client_id, protocol=protocol)
        self.code: int | None = None

    def receive(self, data: bytes) -> bytes:
        """The CONNACK, and whatever follows."""
        for packet in self._splitter.feed(data):
            if packet.kind == packets.CONNACK and self.code is None:
                self.code = packets.read_connack(packet)[1]
        return b""

    def begin_anew(self) -> None:
        """It has nothing."""

    def on_connected(self) -> bytes:
        """It wants nothing."""
        return b""

    def on_packet(self, packet: Packet) -> bytes:
        """It takes anything."""
        return b""


@final
class WanderingRounds(ClusterRounds):
    """Rounds with all of it. The first node must have its HTTP interface.

    Attributes:
        joined: nodes that came from a checkpoint.
        acknowledged: topic, publisher and number of all messages that were.
    """

    def __init__(
        self,
        cluster: ClusterProcesses,
        *,
        seed: str,
        say: Callable[[str], None],
        faults: Sequence[str] = ALL_FAULTS,
        chapter_rounds: int = 4,
    ) -> None:
        super().__init__(cluster, seed=seed, say=say, faults=faults, chapter_rounds=chapter_rounds)
        self.joined = 0
        self.acknowledged: list[tuple[str, str, int]] = []
        self._banned: set[str] = set()
        self._replays: list[PeerConnection[Subscriber]] = []
        self._chapter_begun_us = 0

    async def run(self, rounds: int) -> Outcome:
        """Run them; see ``KillRounds.run``."""
        await self._cluster.start()
        await self._command("filters", "put", FILTER_ID, CONTENT)
        return await super().run(rounds)

    # -- peers -------------------------------------------------------------------------------

    def _connect_publisher(self, client_id: str, *, protocol: int) -> PeerConnection[Publisher]:
        assert protocol == _protocol_of(client_id)
        peer = Publisher(
            client_id, protocol=protocol, ledger=self._ledger, clock=_now_us, labels=_labels
        )
        peer.forgives = self.forgives
        connection = PeerConnection(
            peer, self._broker.place(), after=lambda: self._fill(connection)
        )
        return connection

    def _make_subscribers(self) -> list[Subscriber]:
        peers = super()._make_subscribers()
        for name, protocol, prefix, content in (
            ("sub-odd", 5, "", CONTENT),
            ("sub-odd-stored", 4, f"$filter/{FILTER_ID}/", ""),
        ):
            filters = [("load/+/b", 2), ("load/2/#", 1)]
            peer = Subscriber(
                name,
                filters,
                protocol=protocol,
                chance=self._chance,
                prefix=prefix,
                content=content,
                receipts=Receipts(name, dict(filters), wants=_is_labelled),
            )
            peer.forgives = self.forgives
            peers.append(peer)
        return peers

    async def _chapter(self, number: int, rounds: int) -> None:
        # Offsets have the milliseconds of Kafka's clock, which is this machine's.
        self._chapter_begun_us = _now_us() // _US_PER_MS * _US_PER_MS + _US_PER_MS
        await asyncio.sleep(2 / _US_PER_MS)
        await super()._chapter(number, rounds)
        for connection in self._replays:
            self._subscribers.remove(connection)
        await asyncio.gather(*(connection.close() for connection in self._replays))
        self._replays = []

    async def _round(self, *, first: bool) -> None:
        await super()._round(first=first)
        if len(self._replays) < REPLAYS_MAX:
            connection = self._begin_replay()
            while not connection.peer.is_subscribed and connection.peer.connection_count < 2:
                self._cluster.check()
                await asyncio.sleep(TICK_S)
            if connection.peer.connection_count < 2:
                self._replays.append(connection)
                self._subscribers.append(connection)
            else:
                # It has asked twice, and is given the past twice.
                await connection.close()

    def _begin_replay(self) -> PeerConnection[Subscriber]:
        """Somebody asks for what there was since some moment of this chapter, and goes on."""
        now_us = _now_us() // _US_PER_MS
        since_us = self._chance.randint(self._chapter_begun_us // _US_PER_MS, now_us) * _US_PER_MS
        name, filters = f"replay-{_now_us()}", [("load/+/a", 2), ("load/4/c", 1)]
        peer = Subscriber(
            name,
            filters,
            protocol=4 + len(self._replays) % 2,
            chance=self._chance,
            prefix=f"$replay/{since_us}/",
            receipts=Receipts(name, dict(filters), since_us=since_us),
        )
        peer.forgives = self.forgives
        return PeerConnection(peer, self._broker.place())

    # -- faults ------------------------------------------------------------------------------

    async def _ban(self) -> None:
        """Ban somebody, or take it back, through a node that is killed when it has confirmed."""
        (node,) = self._some(1)
        client_id = f"outcast-{self._chance.randrange(OUTCASTS)}"
        verb = "remove" if client_id in self._banned else "add"
        await self._command("bans", verb, "--client-id", client_id, node=node)
        self._banned ^= {client_id}
        await self._cluster.kill_node(node)
        await self._must_take_messages("ban, and the node dead")
        await self._cluster.spawn()
        await self._cluster.until_listening(node)

    async def _join_by_checkpoint(self) -> None:
        """A node's disk is lost; it, its fetching, or the peer that serves it is killed."""
        peer, *others = self._cluster.nodes
        node = self._chance.choice(others)
        await self._cluster.kill_node(node)
        shutil.rmtree(node.data)
        kind = self._chance.choice(("nothing", "fetching", "peer"))
        fetching = await self._fetch(node)
        if kind != "nothing":
            # It takes a second or so on a machine with nothing else to do.
            await asyncio.sleep(self._chance.uniform(0.2, 2.5))
        if kind == "fetching" and fetching.returncode is None:
            fetching.kill()
        if kind == "peer":
            await self._cluster.kill_node(peer)
        await fetching.wait()
        await self._cluster.spawn_node(peer)
        await self._cluster.until_listening(peer)
        end_s = time.monotonic() + RECOVERY_TIMEOUT_S
        while not (node.data / "CURRENT").exists() or (node.data / RESTORING_NAME).exists():
            fetching = await self._fetch(node)
            _, said = await fetching.communicate()
            if fetching.returncode and (
                fetching.returncode not in _TEMPORARY or time.monotonic() > end_s
            ):
                raise ProcessError(f"cluster join ends with {fetching.returncode}: {said.decode()}")
        for _ in range(self._chance.choice((0, 1, 2))):
            await node.spawn()
            await asyncio.sleep(self._chance.uniform(0.0, 2.0))
            await self._cluster.kill_node(node)
        await self._cluster.spawn_node(node)
        await self._cluster.until_listening(node)
        self.joined += 1

    async def _fetch(self, node: ClusterNodeProcess) -> asyncio.subprocess.Process:
        peer = self._cluster.nodes[0]
        words = ["cluster", "join", "--from", f"http://127.0.0.1:{peer.http_port}"]
        words += ["--token-file", str(peer.data / "http.token"), "--data", str(node.data)]
        return await _start(*words)

    async def _command(self, *words: str, node: ClusterNodeProcess | None = None) -> None:
        """A command of the command line to a node, until it is done.

        Raises:
            ProcessError: it is refused, or is not done in time.
        """
        data = (node or self._cluster.nodes[0]).data
        end_s = time.monotonic() + RECOVERY_TIMEOUT_S
        while True:
            process = await _start(*words, "--data", str(data))
            _, said = await process.communicate()
            if process.returncode == 0:
                return
            if process.returncode not in _TEMPORARY or time.monotonic() > end_s:
                raise ProcessError(
                    f"{' '.join(words)} ends with {process.returncode}: {said.decode()}"
                )
            await asyncio.sleep(TICK_S)

    # -- what must hold ----------------------------------------------------------------------

    def _audit(self) -> None:
        super()._audit()
        self.acknowledged += [
            (topic, publisher, number)
            for (publisher, topic), flow in self._ledger.flows.items()
            for number, at_us in enumerate(flow.acknowledged_at_us, 1)
            if at_us
        ]

    async def _drain(self) -> None:
        await super()._drain()
        for node in self._cluster.nodes:
            for number in range(OUTCASTS):
                await self._check_ban(node, f"outcast-{number}", protocol=4 + number % 2)

    async def _check_ban(self, node: ClusterNodeProcess, client_id: str, *, protocol: int) -> None:
        """A node lets in whom nobody has banned, and nobody else."""
        end_s = time.monotonic() + HANG_S
        while True:
            peer = Outcast(client_id, protocol=protocol)
            connection = PeerConnection(peer, node.process.port)
            asked_s = time.monotonic()
            while peer.code is None and time.monotonic() < asked_s + HANG_S:
                await asyncio.sleep(TICK_S)
            await connection.close()
            is_out = peer.code in BANNED
            if peer.code is not None and is_out == (client_id in self._banned):
                return
            # A node may have to read as far.
            if time.monotonic() > end_s:
                break
        said = "banned" if client_id in self._banned else "not banned"
        self._outcome.failures.append(
            f"{node.name} answers {client_id}, which is {said}, with {peer.code}"
        )


async def _start(*words: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "perdure", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
