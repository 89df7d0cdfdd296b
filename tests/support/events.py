"""The events of a simulation's fault phase: what clients, the network, the machine and its
operator do to a broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from perdure.errors import StorageFull, StorageUnavailable
from tests.support.scenario import TOPICS, Scenario


@final
class Events:
    """Everything that may happen at a step of a run.

    Args:
        scenario: what it happens to.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._chance = scenario.chance
        self._sim = scenario.sim
        self._is_dropping = False

    def weighted(self) -> list[tuple[int, Callable[[], None]]]:
        """What may happen at a step, with how often it does."""
        actions: list[tuple[int, Callable[[], None]]] = [
            (40, self._publish),
            (8, self._subscriber_goes),
            (10, self._subscriber_comes),
            (3, self._cut_someone),
            (3, self._take_over),
            (4, self._stall),
            (4, self._hold),
            (4, self._subscribe_again),
        ]
        if self._scenario.plan.clock_steps:
            actions.append((2, self._step_clock))
        if self._scenario.plan.crashes:
            actions += [(3, self._kill), (2, self._die_in_write)]
        if self._scenario.plan.storage_faults:
            actions += [(2, self._break_disk), (4, self._repair_disk)]
        if self._scenario.plan.generations:
            actions += [(2, self._rotate), (2, self._drop)]
        return actions

    def _publish(self) -> None:
        connection = self._chance.choice(self._scenario.publishers)
        peer = connection.peer
        if not peer.is_connected or len(peer.under_way) > 40:
            return
        count = self._chance.choice((1, 2, 5, 20))
        # One QoS for each state: a QoS 1 message that is sent again after a QoS 2 message was
        # taken is the newer of the two, by MQTT's rules.
        state_qos = 1 + peer.protocol % 2
        # What one client sends together to one topic with one subscriber is handed out together.
        burst = f"burst/{peer.client_id}" if self._chance.random() < 0.3 else ""
        data = [
            peer.publish(f"state/{peer.client_id}", qos=state_qos, retain=True)
            if self._chance.random() < 0.2
            else peer.publish(burst, qos=1)
            if burst
            else peer.publish(self._chance.choice(TOPICS), qos=self._chance.choice((1, 2)))
            for _ in range(count)
        ]
        self._scenario.trace(f"{peer.client_id} publishes {count}")
        connection.write(b"".join(data))

    def _subscriber_goes(self) -> None:
        connection = self._chance.choice(self._scenario.subscribers)
        if connection.peer.is_connected:
            way = self._chance.choice(("leaves", "hangs up", "vanishes"))
            self._scenario.trace(f"{connection.peer.client_id} {way}")
            if way == "vanishes":
                connection.is_wanted = False
                connection.vanish()
            else:
                connection.leave(goodbye=b"\xe0\x00" if way == "leaves" else b"")

    def _subscriber_comes(self) -> None:
        connection = self._chance.choice(self._scenario.subscribers)
        if not connection.peer.is_connected:
            connection.peer.window = self._chance.choice((0, 1, 3, 20))
            self._scenario.trace(
                f"{connection.peer.client_id} comes, window {connection.peer.window}"
            )
            connection.connect()

    def _cut_someone(self) -> None:
        connection = self._chance.choice(self._scenario.connections())
        self._scenario.trace(f"{connection.peer.client_id} is cut")
        connection.cut()

    def _take_over(self) -> None:
        connection = self._chance.choice(self._scenario.connections())
        if connection.peer.is_connected:
            self._scenario.trace(f"{connection.peer.client_id} comes again")
            connection.connect()

    def _stall(self) -> None:
        connection = self._chance.choice(self._scenario.subscribers)
        if self._chance.random() < 0.5:
            connection.stop_taking()
        else:
            connection.take_again()

    def _hold(self) -> None:
        self._chance.choice(self._scenario.subscribers).peer.hold = self._chance.choice(
            (0.0, 0.2, 0.8)
        )

    def _subscribe_again(self) -> None:
        connection = self._chance.choice(self._scenario.subscribers)
        if connection.peer.is_connected:
            self._scenario.trace(f"{connection.peer.client_id} subscribes again")
            connection.write(connection.peer.subscribe())

    def _step_clock(self) -> None:
        change_us = self._chance.choice((-60_000_000, -5_000, 5_000, 60_000_000))
        self._scenario.trace(f"the clock is set by {change_us} us")
        self._sim.clock.step_wall_us(change_us)

    def _kill(self) -> None:
        if self._sim.broker is None:
            self._scenario.start()
            return
        power = self._scenario.plan.power_cuts and self._chance.random() < 0.5
        self._scenario.trace("power is cut" if power else "the broker is killed")
        self._scenario.report.crashes += 1
        self._sim.kill(power=power, keep_some=self._chance.random() < 0.5)
        if self._chance.random() < 0.8:
            self._scenario.start()

    def _die_in_write(self) -> None:
        store = self._sim.store
        store.die_in = self._chance.choice((0, 0, 1, 3, 10))
        store.die_after_write = self._chance.random() < 0.5
        self._scenario.trace(f"the broker will die in {store.die_in} writes")

    def _break_disk(self) -> None:
        store = self._sim.store
        if self._chance.random() < 0.5:
            self._scenario.trace("writes fail")
            store.write_error = self._chance.choice(
                (StorageFull("full"), StorageUnavailable("broken"))
            )
        else:
            store.forgets = self._chance.random() < 0.5
            self._scenario.trace(f"syncs fail, forgetting {store.forgets}")
            store.sync_error = StorageUnavailable("broken")

    def _repair_disk(self) -> None:
        if self._sim.store.is_failing:
            self._scenario.trace("the disk is repaired")
            self._sim.store.heal()

    def _rotate(self) -> None:
        broker = self._sim.broker
        store = self._sim.store
        if broker is None or store.is_failing or not broker.services.committer.writable:
            return
        self._scenario.trace("a new generation")
        store.rotate(self._sim.clock.now_us())

    def _drop(self) -> None:
        broker = self._sim.broker
        store = self._sim.store
        old = store.generations()[:-1]
        if broker is None or not old or store.is_failing or self._is_dropping:
            return
        if not broker.services.committer.writable:
            return
        self._scenario.trace(f"generation {old[0].generation} is dropped")
        scheduler = self._sim.scheduler
        assert scheduler is not None
        self._is_dropping = True

        async def drop() -> None:
            try:
                await broker.services.retention.drop(old[0])
            except (StorageFull, StorageUnavailable) as error:
                self._scenario.trace(f"not dropped: {error.message}")
            finally:
                self._is_dropping = False

        scheduler.spawn(drop(), name="drop")
