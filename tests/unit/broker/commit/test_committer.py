"""Group commit: no acknowledgement overtakes its commit, and none stands in the way of another."""

from __future__ import annotations

import random
from typing import Literal

import pytest

from perdure.broker.commit.committer import Committer
from perdure.broker.commit.cursors import CURSOR_DELAY_US
from perdure.broker.commit.pipeline import GATHERED_MAX
from perdure.broker.commit.waiters import LEVEL_FSYNC, LEVEL_MEMORY, LEVEL_OS, CommitListener
from perdure.broker.delivery.held_session import CURSOR_MESSAGES_MAX
from perdure.config.schema import Config, StorageConfig
from perdure.errors import StorageError, StorageFull, StorageUnavailable
from perdure.model import InboxEntry, Message
from perdure.mqtt.packets import PUBACK, PUBREC, Ack, Publish
from perdure.observe.metrics import Metrics
from tests.support.clock import VirtualClock
from tests.support.scheduler import VirtualLoop, VirtualScheduler
from tests.support.storage import FaultyDatabase
from tests.unit.broker.harness import QUIET, Client, make_sim, stalled_sim


class Waiting:
    """A waiter that writes down what became of it."""

    def __init__(self, name: str, story: list[str]) -> None:
        self._name = name
        self._story = story

    def committed(self) -> None:
        self._story.append(self._name)

    def failed(self, error: StorageError, *, in_doubt: bool) -> None:
        self._story.append(f"{self._name} failed{' in doubt' if in_doubt else ''}")

    def broke(self, error: Exception) -> None:
        self._story.append(f"{self._name} broke: {error}")


class Broken(Waiting):
    """A waiter that cannot bear it."""

    def committed(self) -> None:
        raise ValueError("yes")

    def failed(self, error: StorageError, *, in_doubt: bool) -> None:
        raise ValueError("no")


SPACED = Config(sys=QUIET, storage=StorageConfig(commit_interval_us=2_000))


def keep_spaced(committer: Committer) -> None:
    committer.pacer.written(0, 0, committer.clock.monotonic_us())
    committer.pacer.spaced = True


class Syncs(CommitListener):
    """Who has nothing to write: what is due is the sync."""

    def __init__(self, committer: Committer) -> None:
        self.committer = committer

    def commit_due(self) -> None:
        self.committer.sync_if_due()


class Bench:
    """A committer alone."""

    def __init__(self, *, interval_us: int = 1_000, messages_max: int = 3) -> None:
        self.clock = VirtualClock()
        self.loop = VirtualLoop(self.clock)
        self.store = FaultyDatabase()
        self.metrics = Metrics()
        self.scheduler = VirtualScheduler(self.loop, random.Random(1), blocking_us=(400, 400))
        self.committer = Committer(
            self.store,
            self.scheduler,
            self.clock,
            self.metrics,
            interval_us=interval_us,
            messages_max=messages_max,
        )
        self.committer.listener = Syncs(self.committer)
        self.story: list[str] = []
        self.loop.run_for(10_000)

    def keep_spaced(self) -> None:
        """As if it had been learned that a distance between commits pays."""
        keep_spaced(self.committer)

    def add(self, name: str, level: int = LEVEL_FSYNC, *, message: bool = True) -> None:
        if message:
            self.committer.batch.append(Message("t", b"", 1))
        self.committer.wait(Waiting(name, self.story), level)

    def turn(self) -> None:
        self.committer.write([], self.clock.now_us())
        self.committer.sync_if_due()


def test_each_level_has_its_moment() -> None:
    bench = Bench()
    bench.add("fsync")
    bench.add("os", LEVEL_OS)
    bench.add("memory", LEVEL_MEMORY)
    assert bench.story == []
    bench.committer.write([], bench.clock.now_us())
    assert bench.story == ["memory", "os"]
    assert bench.store.write_count == 1
    bench.committer.sync_if_due()
    bench.loop.run_for(399)
    assert bench.story == ["memory", "os"]
    bench.loop.run_for(1)
    assert bench.story == ["memory", "os", "fsync"]


@pytest.mark.trap(22)
def test_a_batch_gathers_while_one_is_synced() -> None:
    """Trap 22: who comes meanwhile is neither forgotten nor answered by the sync under way."""
    bench = Bench(interval_us=0)
    bench.add("first")
    bench.turn()
    for number in range(5):
        bench.add(f"later {number}")
        bench.turn()
    assert bench.store.sync_count <= 1
    bench.loop.run_for(10_000)
    assert bench.story == ["first", *(f"later {number}" for number in range(5))]
    assert bench.store.sync_count == 2


def test_commits_keep_a_beat() -> None:
    """What a turn takes to read and write does not come on top of the distance."""
    bench = Bench(interval_us=5_000)
    bench.keep_spaced()
    bench.add("on time")
    bench.turn()
    begun_us = bench.clock.monotonic_us()
    for late_us in (2_000, 0, 2_500):
        bench.loop.run_for(begun_us + 5_000 + late_us - bench.clock.monotonic_us())
        bench.add("late")
        assert not bench.committer.gathers()
        bench.turn()
        begun_us += 5_000
    bench.loop.run_for(begun_us + 4_999 - bench.clock.monotonic_us())
    bench.add("early")
    assert bench.committer.gathers()


def test_a_turn_that_takes_too_long_sets_a_new_beat() -> None:
    """Else the next commit would follow at once, and gather nothing."""
    bench = Bench(interval_us=5_000)
    bench.keep_spaced()
    bench.add("on time")
    bench.turn()
    bench.loop.run_for(5_000 + 2_501)
    bench.add("too late")
    bench.turn()
    bench.loop.run_for(4_999)
    bench.add("early")
    assert bench.committer.gathers()
    bench.loop.run_for(1)
    assert not bench.committer.gathers()


def test_what_is_written_waits_for_no_distance_but_for_the_sync_under_way() -> None:
    """Writes are spaced; were syncs as well, a message could wait for two intervals."""
    bench = Bench(interval_us=5_000)
    bench.keep_spaced()
    bench.add("first")
    bench.turn()
    bench.loop.run_for(100)
    bench.add("second")
    bench.turn()
    bench.loop.run_for(300)
    assert bench.story == ["first"]
    bench.committer.sync_if_due()
    bench.loop.run_for(400)
    assert bench.story == ["first", "second"]


def test_a_background_sync_does_not_delay_the_next_waiter() -> None:
    bench = Bench()
    bench.add("first")
    bench.turn()
    bench.committer.batch.append(Message("t", b"", 1))
    bench.loop.run_for(450)
    bench.turn()  # asks for a sync some time
    bench.add("second")
    bench.turn()
    bench.loop.run_for(1_500)
    assert bench.story == ["first", "second"]


def test_a_sync_does_not_vouch_for_the_open_batch() -> None:
    bench = Bench()
    bench.add("first")
    bench.committer.write([], bench.clock.now_us())
    written = bench.store.last_offset
    bench.add("open")
    bench.committer.sync_if_due()
    bench.loop.run_for(400)
    assert bench.story == ["first"]
    assert bench.committer.log_sync.offset == written


def test_offsets_without_a_write_are_synced_when_all_writes_are() -> None:
    bench = Bench()
    bench.add("first")
    bench.turn()
    bench.committer.batch.place(InboxEntry(0, None, qos=1))
    bench.turn()
    assert not bench.committer.catch_up()
    bench.loop.run_for(10_000)
    bench.committer.write([], bench.clock.now_us())
    assert bench.committer.catch_up()
    assert bench.committer.log_sync.offset == bench.store.last_offset
    assert not bench.committer.catch_up()


def test_who_waits_with_nothing_to_write_waits_for_what_came_before() -> None:
    bench = Bench()
    bench.add("first")
    bench.turn()
    bench.add("state", message=False)
    bench.turn()
    assert bench.story == []
    bench.loop.run_for(10_000)
    assert bench.story == ["first", "state"]
    bench.add("nothing", message=False)
    bench.turn()
    assert bench.story == ["first", "state", "nothing"]


@pytest.mark.trap(35)
def test_a_refused_write_fails_its_batch_and_no_other() -> None:
    """Trap 35: not acknowledged, and what was written before it still is."""
    bench = Bench()
    bench.add("before")
    bench.turn()
    bench.store.write_error = StorageFull("full")
    bench.add("refused")
    bench.add("refused os", LEVEL_OS)
    bench.turn()
    assert bench.story == ["refused os failed", "refused failed"]
    assert not bench.committer.writable
    bench.add("meanwhile")
    bench.turn()
    bench.add("no batch", message=False)
    bench.turn()
    assert bench.story[2:] == ["meanwhile failed", "no batch failed"]


def test_a_failed_sync_leaves_all_in_doubt() -> None:
    bench = Bench()
    bench.add("first")
    bench.turn()
    bench.add("second")
    bench.committer.write([], bench.clock.now_us())
    bench.store.sync_error = StorageUnavailable("broken")
    bench.loop.run_for(400)
    assert bench.story == ["first failed in doubt", "second failed in doubt"]
    assert not bench.committer.writable


def test_a_failure_outside_commits_leaves_all_in_doubt() -> None:
    """What is not synced must not be vouched for by a sync of the store that comes back."""
    bench = Bench(interval_us=5_000)
    bench.keep_spaced()
    bench.add("syncing")
    bench.turn()
    bench.add("written")
    bench.turn()
    bench.committer.lost(StorageUnavailable("broken"))
    assert bench.story == ["written failed in doubt"]
    assert not bench.committer.writable
    bench.committer.recovered()
    bench.loop.run_for(10_000)
    assert bench.story == ["written failed in doubt", "syncing"]


@pytest.mark.trap(35)
@pytest.mark.parametrize("qos", [1, 2])
def test_no_acknowledgement_before_the_sync(qos: int) -> None:
    sim = stalled_sim()
    client = Client(sim, "c")
    client.connect(expiry_s=0, clean=True)
    client.publish("t", qos=qos)
    client.none_comes(Ack, within_us=5_000_000)
    assert sim.store.write_count


def test_who_sends_large_messages_waits_for_the_disk_and_others_do_not() -> None:
    sim = stalled_sim()
    large, small = Client(sim, "large"), Client(sim, "small")
    for client in (large, small):
        client.connect(expiry_s=0, clean=True)
    for _ in range(20):
        large.publish("t", bytes(1_000_000))
    sim.run_for(1_000_000)
    committer = sim.live.services.committer
    taken = committer.backlog()
    assert 2 <= taken <= 4, "what exceeds the bound was read with it"
    small.publish("t")
    sim.run_for(1_000_000)
    assert committer.backlog() == taken + 1


def test_all_large_messages_are_acknowledged_in_the_end() -> None:
    sim = make_sim()
    client = Client(sim, "c")
    client.connect(expiry_s=0, clean=True)
    sent = [client.publish("t", bytes(1_000_000)) for _ in range(20)]
    assert [client.take(Ack).packet_id for _ in sent] == sent


@pytest.mark.parametrize("durability", ["os", "memory"])
def test_a_listener_may_wait_for_less(durability: str) -> None:
    sim = stalled_sim(durability=durability)
    client = Client(sim, "c")
    client.connect(expiry_s=0, clean=True)
    assert client.publish("t") == client.take(Ack).packet_id
    assert sim.store.sync_count == 0


@pytest.mark.parametrize(("durability", "waits_us"), [("os", 1_100_000), ("fsync", 0)])
def test_what_a_power_cut_may_take(durability: Literal["os", "fsync"], waits_us: int) -> None:
    """``fsync``: nothing that was acknowledged; ``os``: at most the last second of it."""
    config = Config(sys=QUIET, storage=StorageConfig(durability=durability))
    sim = make_sim(config=config)
    reader, publisher = Client(sim, "r"), Client(sim, "p")
    reader.connect()
    reader.subscribe("t")
    sim.run_for(2_000_000)
    reader.disconnect()
    publisher.connect(expiry_s=0, clean=True)
    for number in range(5):
        publisher.deliver("t", b"%d" % number)
    sim.run_for(waits_us)
    for number in range(5, 10):
        publisher.deliver("t", b"%d" % number)
    sim.kill(power=True)
    sim.start()
    assert reader.connect().session_present
    kept = reader.payloads()
    assert kept == [b"%d" % number for number in range(len(kept))]
    assert len(kept) >= (5 if durability == "os" else 10)


def test_acknowledgements_keep_the_order_of_their_messages() -> None:
    sim = make_sim()
    client = Client(sim, "c", acks=False)
    client.connect()
    client.send(
        Publish("a", b"", 1, packet_id=5),
        Publish("a", b"", 2, packet_id=3),
        Publish("$SYS/a", b"", 1, packet_id=9),
        Publish("a", b"", 1, packet_id=1),
    )
    sim.run_for(50_000)
    assert [packet for packet in client.received if isinstance(packet, Ack)] == [
        Ack(PUBACK, 5, 0x10),
        Ack(PUBREC, 3),
        Ack(PUBACK, 9, 0x87),
        Ack(PUBACK, 1, 0x10),
    ]


def test_many_messages_make_few_syncs() -> None:
    config = Config(sys=QUIET, storage=StorageConfig(commit_interval_us=2_000))
    sim = make_sim(config=config)
    client = Client(sim, "c")
    client.connect()
    begun_us = sim.clock.monotonic_us()
    sent = 0

    def send_for(milliseconds: int) -> None:
        """10,000 a second, by the clock: a broker that stands still does not slow who sends."""
        nonlocal sent
        for _ in range(10 * milliseconds):
            while sent * 100 < sim.clock.monotonic_us() - begun_us:
                client.publish("t")
                sent += 1
            sim.run_for(100)

    send_for(1_500)  # it takes one second to learn that a distance costs no messages
    before, before_us = sim.store.sync_count, sim.clock.monotonic_us()
    send_for(20)
    elapsed_us = sim.clock.monotonic_us() - before_us
    sim.run_for(20_000)
    assert len([packet for packet in client.received if isinstance(packet, Ack)]) == sent
    assert sim.store.sync_count - before <= elapsed_us // 2_000 + 2


def test_who_waits_for_acknowledgements_gets_them_without_a_distance() -> None:
    """One message after the other: the rate is what a sync takes, not the interval."""
    config = Config(sys=QUIET, storage=StorageConfig(commit_interval_us=20_000))
    sim = make_sim(config=config)
    client = Client(sim, "p")
    client.connect()
    for number in range(2_000):
        client.publish("t", b"%d" % number)
        while not any(isinstance(packet, Ack) for packet in client.received):
            sim.run_for(50)
        client.received.clear()
        if number == 1_000:
            begun_us = sim.clock.monotonic_us()
    elapsed_us = sim.clock.monotonic_us() - begun_us
    assert elapsed_us / 1_000 < 4_000


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(("without", "spaced"), [(10, True), (100, False)])
def test_what_is_delivered_speaks_for_a_distance_or_against_it(
    qos: int, without: int, spaced: bool
) -> None:
    """2,000 messages a second come by themselves; without a distance more may be delivered."""
    bench = Bench(interval_us=2_000)
    spaced_count = 0
    for step in range(12_000):
        bench.add("x")
        if not bench.committer.gathers():
            bench.turn()
        is_spaced = bench.committer.pacer.spaced
        name = f"messages_delivered_{qos}"
        delivered = getattr(bench.metrics, name) + (10 if is_spaced else without)
        setattr(bench.metrics, name, delivered)
        spaced_count += is_spaced and step >= 4_000
        bench.loop.run_for(500)
    assert (spaced_count > 7_000) if spaced else (spaced_count < 1_000)


def test_messages_of_one_interval_share_a_write() -> None:
    """The first goes at once; those that follow within the interval are written together, and
    delivered not before."""
    sim = make_sim(config=SPACED)
    publisher, reader = Client(sim, "p"), Client(sim, "r")
    publisher.connect()
    reader.connect()
    reader.subscribe("t", qos=1)
    sim.run_for(50_000)
    keep_spaced(sim.live.services.committer)
    before = sim.store.write_count
    publisher.publish("t", b"0")
    sim.run_for(100)
    assert [message.payload for message in reader.messages] == [b"0"]
    assert sim.store.write_count == before + 1
    for number in range(1, 10):
        publisher.publish("t", b"%d" % number)
        sim.run_for(100)
    assert len(reader.messages) == 1
    sim.run_for(2_000)
    assert [message.payload for message in reader.messages] == [b"%d" % n for n in range(10)]
    assert sim.store.write_count == before + 2
    sim.run_for(5_000)
    assert len([packet for packet in publisher.received if isinstance(packet, Ack)]) == 10


def test_a_full_batch_does_not_wait_for_its_interval() -> None:
    config = Config(sys=QUIET, storage=StorageConfig(commit_interval_us=1_000_000))
    sim = make_sim(config=config)
    publisher, reader = Client(sim, "p"), Client(sim, "r")
    publisher.connect(wait=False)
    reader.connect(wait=False)
    sim.run_for(3_000_000)
    reader.subscribe("t", qos=1)
    publisher.publish("t")
    sim.run_for(100)
    seen = len(reader.messages)
    publisher.send(*(Publish("t", b"", 1, packet_id=n) for n in range(2, 2 + GATHERED_MAX)))
    sim.run_for(1_000)
    assert len(reader.messages) >= seen + GATHERED_MAX


def test_what_gathers_is_not_acknowledged_before_it_is_synced() -> None:
    """A power cut while a batch gathers takes nothing that was acknowledged."""
    sim = make_sim(config=SPACED)
    publisher = Client(sim, "p")
    publisher.connect()
    sim.run_for(50_000)
    for number in range(30):
        publisher.publish("t", b"%d" % number)
        sim.run_for(137)
    acked = len([packet for packet in publisher.received if isinstance(packet, Ack)])
    assert 0 < acked < 30
    sim.kill(power=True)
    sim.start()
    reader = Client(sim, "r")
    reader.connect()
    reader.subscribe("$replay/0/t", qos=1)
    sim.run_for(50_000)
    assert len(reader.messages) >= acked


def test_cursors_are_written_with_what_comes_and_in_the_end_by_themselves() -> None:
    sim = make_sim(config=SPACED)
    publisher = Client(sim, "p")
    publisher.connect()
    readers = [Client(sim, f"r{number}") for number in range(20)]
    for reader in readers:
        reader.connect()
        reader.subscribe("t", qos=1)
    sim.run_for(CURSOR_DELAY_US * 2)
    publisher.deliver("t")

    def stale() -> int:
        count = 0

        async def look() -> None:
            nonlocal count
            for reader in readers:
                session = await sim.store.open_session(reader.client_id)
                assert session is not None
                count += session.cursor.serial == 0

        assert sim.scheduler is not None
        sim.scheduler.run(look())
        return count

    sim.run_for(10_000)
    assert stale() == 20
    publisher.deliver("other")  # one message takes one cursor along
    assert stale() == 19
    sim.run_for(CURSOR_DELAY_US * 2)
    assert stale() == 0


def test_many_acknowledgements_write_a_cursor_before_its_time() -> None:
    sim = make_sim(config=SPACED)
    publisher, reader = Client(sim, "p"), Client(sim, "r")
    publisher.connect()
    reader.connect()
    reader.subscribe("t", qos=1)
    for first in range(1, 2 * CURSOR_MESSAGES_MAX, 64):
        publisher.send(*(Publish("t", b"", 1, packet_id=n) for n in range(first, first + 64)))
    sim.run_for(20_000)
    sim.kill()
    sim.start()
    count = len(reader.messages)
    reader.connect()
    sim.run_for(50_000)
    assert len(reader.messages) - count < CURSOR_MESSAGES_MAX


def test_a_clean_start_waits_until_the_old_session_is_gone() -> None:
    """[MQTT-3.1.2-4] also when the new session itself is not stored."""
    sim = make_sim(config=SPACED)
    client = Client(sim, "c")
    client.connect()
    client.disconnect()
    assert not client.connect(clean=True, expiry_s=0).session_present
    sim.kill(power=True)
    sim.start()
    assert not client.connect().session_present


def test_a_broker_that_rests_delivers_and_acknowledges_all() -> None:
    sim = make_sim(config=SPACED)
    sim.kill()
    sim.rests = True
    sim.start()
    assert sim.scheduler is not None
    publisher, reader = Client(sim, "p"), Client(sim, "r")
    publisher.connect()
    reader.connect()
    reader.subscribe("t", qos=2)
    for number in range(300):
        publisher.publish("t", b"%d" % number, qos=number % 3)
        sim.run_for(137)
    assert sim.scheduler.rest_count > 10
    sim.run_for(20_000)
    kept = [message.payload for message in reader.messages]
    assert sorted(map(int, kept)) == list(range(300))
    acks = [packet for packet in publisher.received if isinstance(packet, Ack)]
    assert len([ack for ack in acks if ack.kind == PUBACK]) == 100


@pytest.mark.parametrize("level", [LEVEL_MEMORY, LEVEL_OS, LEVEL_FSYNC])
@pytest.mark.parametrize("fails", ["", "write", "sync"])
def test_what_breaks_one_keeps_it_from_nobody(level: int, fails: str) -> None:
    bench = Bench()
    error = StorageUnavailable("gone")
    if fails == "write":
        bench.store.write_error = error
    elif fails == "sync":
        bench.store.sync_error = error
    bench.add("before", level)
    bench.committer.wait(Broken("broken", bench.story), level)
    bench.add("behind", level)
    bench.turn()
    bench.loop.run_for(10_000)
    ends = {"": "", "write": " failed", "sync": " failed in doubt"}[fails]
    if level == LEVEL_MEMORY or (level == LEVEL_OS and fails == "sync"):
        ends = ""
    why = "no" if ends else "yes"
    assert bench.story == [f"before{ends}", f"broken broke: {why}", f"behind{ends}"]
