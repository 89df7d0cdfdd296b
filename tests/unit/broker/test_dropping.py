"""Dropping a generation: who is visited, in which state, and what must be on disk before."""

from __future__ import annotations

import pytest
from tests.support.world import World
from tests.unit.broker.harness import Client, make_world

from perdure.broker.dropping import make_durable, visit_session
from perdure.broker.live_session import LiveSession
from perdure.errors import StorageError, StorageUnavailable


class Visit:
    """Sees what a visitor is given, and what is stored then."""

    def __init__(self, world: World, client_id: str) -> None:
        self.world = world
        self.client_id = client_id
        self.seen: list[tuple[bool, int]] = []
        self.answer = 0

    async def work(self, live: LiveSession | None) -> int:
        """Look at the session."""
        services = self.world.live.services
        assert services.registry.is_busy(self.client_id)
        stored = await services.database.open_session(self.client_id)
        assert stored is not None
        self.seen.append((live is not None, stored.cursor.offset))
        return 7

    async def run(self) -> None:
        """Visit the session."""
        services = self.world.live.services
        self.answer = await visit_session(services, self.client_id, self.work)

    def do(self) -> None:
        """Visit the session, and let the world go on until that has ended."""
        assert self.world.scheduler is not None
        self.world.scheduler.run(self.run())


@pytest.mark.parametrize("connected", [False, True])
def test_a_durable_session_is_visited_with_its_cursor_written(connected: bool) -> None:
    world = make_world()
    publisher, client = Client(world, "p"), Client(world, "c")
    publisher.connect(expiry_s=0, clean=True)
    client.connect()
    client.subscribe("t")
    publisher.deliver("t")
    world.run_for(10_000)
    if not connected:
        client.cut()
    visit = Visit(world, "c")
    visit.do()
    assert visit.answer == 7
    assert visit.seen == [(connected, world.live.services.dispatcher.offset)]
    assert world.live.services.registry.is_busy("c") is connected
    visit.do()  # it has let go of the client id


def test_a_session_in_memory_is_not_visited() -> None:
    world = make_world()
    Client(world, "c").connect(expiry_s=0, clean=True)
    visit = Visit(world, "c")
    visit.do()
    visit.do()  # it has let go of the client id
    assert (visit.answer, visit.seen) == (0, [])


def test_a_visit_that_fails_lets_the_client_in_again() -> None:
    world = make_world()
    client = Client(world, "c")
    client.connect()
    client.cut()
    visit = Visit(world, "c")
    world.store.read_error = StorageUnavailable("broken")
    with pytest.raises(StorageError):
        visit.do()
    world.store.heal()
    assert client.connect().session_present


def test_nothing_counts_as_durable_after_a_failure() -> None:
    """A write that failed meanwhile may have been one of what was to be saved."""
    world = make_world()
    services = world.live.services
    assert world.scheduler is not None
    world.scheduler.run(make_durable(services, services.committer.failure_count))
    with pytest.raises(StorageUnavailable):
        world.scheduler.run(make_durable(services, services.committer.failure_count - 1))
