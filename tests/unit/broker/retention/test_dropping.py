"""Dropping a generation: who is visited, in which state, and what must be on disk before."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perdure.broker.delivery.live_session import LiveSession
from perdure.broker.retention import dropping
from perdure.broker.retention.dropping import count_of_generation, make_durable, visit_session
from perdure.errors import StorageError, StorageUnavailable
from perdure.storage.contract import Counted
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import Client, make_sim


class Visit:
    """Sees what a visitor is given, and what is stored then."""

    def __init__(self, sim: SimBroker, client_id: str) -> None:
        self.sim = sim
        self.client_id = client_id
        self.seen: list[tuple[bool, int]] = []
        self.answer = 0

    async def work(self, live: LiveSession | None) -> int:
        """Look at the session."""
        services = self.sim.live.services
        assert services.registry.is_busy(self.client_id)
        stored = await services.database.open_session(self.client_id)
        assert stored is not None
        self.seen.append((live is not None, stored.cursor.offset))
        return 7

    async def run(self) -> None:
        """Visit the session."""
        services = self.sim.live.services
        self.answer = await visit_session(services, services.registry, self.client_id, self.work)

    def do(self) -> None:
        """Visit the session, and let time pass until that has ended."""
        assert self.sim.scheduler is not None
        self.sim.scheduler.run(self.run())


@pytest.mark.parametrize("connected", [False, True])
def test_a_durable_session_is_visited_with_its_cursor_written(connected: bool) -> None:
    sim = make_sim()
    publisher, client = Client(sim, "p"), Client(sim, "c")
    publisher.connect(expiry_s=0, clean=True)
    client.connect()
    client.subscribe("t")
    publisher.deliver("t")
    sim.run_for(10_000)
    if not connected:
        client.cut()
    visit = Visit(sim, "c")
    visit.do()
    assert visit.answer == 7
    assert visit.seen == [(connected, sim.live.services.dispatcher.offset)]
    assert sim.live.services.registry.is_busy("c") is connected
    visit.do()  # it has let go of the client id


def test_a_session_in_memory_is_not_visited() -> None:
    sim = make_sim()
    Client(sim, "c").connect(expiry_s=0, clean=True)
    visit = Visit(sim, "c")
    visit.do()
    visit.do()  # it has let go of the client id
    assert (visit.answer, visit.seen) == (0, [])


def test_a_visit_that_fails_lets_the_client_in_again() -> None:
    sim = make_sim()
    client = Client(sim, "c")
    client.connect()
    client.cut()
    visit = Visit(sim, "c")
    sim.store.read_error = StorageUnavailable("broken")
    with pytest.raises(StorageError):
        visit.do()
    sim.store.heal()
    assert client.connect().session_present


def test_nothing_counts_as_durable_after_a_failure() -> None:
    """A write that failed meanwhile may have been one of what was to be saved."""
    sim = make_sim()
    services = sim.live.services
    assert sim.scheduler is not None
    sim.scheduler.run(make_durable(services, services.committer.failure_count))
    with pytest.raises(StorageUnavailable):
        sim.scheduler.run(make_durable(services, services.committer.failure_count - 1))


def test_a_generation_is_counted_between_turns_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dropping, "COUNTED_MAX", 3)
    sim = make_sim()
    publisher = Client(sim, "p")
    publisher.connect(expiry_s=0, clean=True)
    for number in range(10):
        publisher.deliver(f"t/{number % 2}", qos=1)
    sim.run_for(10_000)
    services, count = sim.live.services, sim.store.count
    steps: list[str] = []

    async def counted(filters: Any, **bounds: Any) -> Counted:
        found = await count(filters, **bounds)
        steps.append(f"counted {found.count}")
        return found

    def turn() -> None:
        steps.append("turn")
        if len(steps) < 50:
            services.scheduler.call_soon(turn)

    monkeypatch.setattr(sim.store, "count", counted)
    last = services.database.last_offset
    info = msgspec.structs.replace(sim.store.generations()[0], until_offset=last + 1)
    assert sim.scheduler is not None
    found: list[int] = []

    async def look() -> None:
        found.append(await count_of_generation(services, ["t/1"], 0, info))

    services.scheduler.call_soon(turn)
    sim.scheduler.run(look())
    assert found == [5]
    assert [step for step in steps if step != "turn"] == ["counted 3", "counted 2"]
    assert "turn" in steps[steps.index("counted 3") : steps.index("counted 2")]
