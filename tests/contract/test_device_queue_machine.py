"""Any history of calls gives the same answers from every backend as from the reference."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from perdure.errors import PerdureError
from perdure.model import Message
from perdure.storage.device_queue import DeviceQueue, EntryState, NewEntry, QueuedEntry
from perdure.storage.memory import MemoryDeviceQueue
from tests.contract.queues import NOW_US, PROPERTIES, QUEUES, SECOND_US, parameters, read_all

T = TypeVar("T")

clients = st.sampled_from(["a", "b", "{x}y"])
epochs = st.integers(0, 3)
# Few enough that they meet again, on both sides of the wrap.
packet_ids = st.sampled_from([1, 2, 3, 4, 5, 6, 40, 65_533, 65_534, 65_535])
moments = st.integers(1, 30)


@st.composite
def new_entries(draw: st.DrawFn) -> list[tuple[str, dict[str, Any]]]:
    """Entries without their serials and positions, which depend on the past."""
    return draw(
        st.lists(
            st.tuples(
                clients,
                st.fixed_dictionaries(
                    {
                        "payload": st.binary(max_size=40),
                        "qos": st.integers(1, 2),
                        "retain": st.booleans(),
                        "packet_id": st.just(0) | packet_ids,
                        "jump": st.sampled_from([0, 0, 0, 1, 70_000]),
                        "position": st.integers(0, 60),
                        "expires": st.just(0) | moments,
                        "forget": st.just(0) | moments,
                        "pubrel": st.booleans() | st.just(False),
                        "properties": st.sampled_from([b"", PROPERTIES]),
                        "extra": st.sampled_from([b"", b"\x00x"]),
                    }
                ),
            ),
            max_size=8,
        )
    )


def _seen(entry: QueuedEntry) -> tuple[object, ...]:
    """What all backends must agree on."""
    message = entry.message
    owed = entry.state is EntryState.PUBLISH
    expires_first = owed and message.expires_at_us and entry.forget_at_us >= message.expires_at_us
    return (
        entry.serial,
        entry.packet_id,
        entry.state,
        entry.qos,
        entry.extra,
        entry.retain,
        message.topic,
        message.payload,
        message.properties if owed else b"",
        message.expires_at_us,
        0 if expires_first else entry.forget_at_us,
    )


class QueueMachine(RuleBasedStateMachine):
    """Two queues, one history."""

    def __init__(self, request: pytest.FixtureRequest, name: str) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.model = MemoryDeviceQueue()
        self.opened = QUEUES[name](request)
        self.real: DeviceQueue = self.run(self.opened.__aenter__())
        self.now_us = NOW_US

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(coroutine)

    def both(self, call: str, *args: object, **kwargs: object) -> None:
        """Make a call on both; the same answer, or the same error."""
        answers = []
        for queue in (self.model, self.real):
            try:
                answers.append(self.run(getattr(queue, call)(*args, **kwargs)))
            except PerdureError as error:
                answers.append(error.code)
        expected, got = answers
        if call == "take" and not isinstance(expected, str):
            expected, got = _counts(expected), _counts(got)
        assert got == expected

    @rule(drawn=new_entries(), limit=st.sampled_from([2, 5, 1000]))
    def append(self, drawn: list[tuple[str, dict[str, Any]]], limit: int) -> None:
        last: dict[str, int] = {}
        entries = []
        for client_id, fields in drawn:
            if client_id not in last:
                stats = self.run(self.model.stats(client_id))
                last[client_id] = stats.last_serial if stats else 0
            jump = fields["jump"]
            serial = last[client_id] + jump if jump else 0
            # A repeat takes no serial, so later jumps only grow.
            last[client_id] += max(jump, 1)
            entries.append(
                NewEntry(
                    client_id,
                    Message(
                        "t/ä",
                        fields["payload"],
                        fields["qos"],
                        fields["retain"],
                        properties=fields["properties"],
                        expires_at_us=self._moment(fields["expires"]),
                        published_at_us=self.now_us,
                    ),
                    fields["qos"],
                    retain=fields["retain"],
                    position=fields["position"],
                    serial=serial,
                    packet_id=fields["packet_id"],
                    state=EntryState(fields["pubrel"]),
                    forget_at_us=self._moment(fields["forget"]),
                    extra=fields["extra"],
                )
            )
        self.both("append", entries, now_us=self.now_us, limit=limit)

    @rule(client_id=clients, epoch=epochs)
    def take(self, client_id: str, epoch: int) -> None:
        self.both("take", client_id, epoch=epoch)

    @rule(client_id=clients, ids=st.lists(packet_ids, max_size=4), epoch=epochs)
    def acknowledge(self, client_id: str, ids: list[int], epoch: int) -> None:
        self.both("acknowledge", client_id, ids, epoch=epoch)

    @rule(client_id=clients, ids=st.lists(packet_ids, max_size=4))
    def acknowledge_as_owner(self, client_id: str, ids: list[int]) -> None:
        self.both("acknowledge", client_id, ids, epoch=self._owner(client_id))

    @rule(client_id=clients, ids=st.lists(packet_ids, max_size=4), forget=st.just(0) | moments)
    def release(self, client_id: str, ids: list[int], forget: int) -> None:
        epoch = self._owner(client_id)
        self.both("release", client_id, ids, epoch=epoch, forget_at_us=self._moment(forget))

    @rule(client_id=clients, back=st.integers(0, 4))
    def trim_through(self, client_id: str, back: int) -> None:
        stats = self.run(self.model.stats(client_id))
        serial = max(0, stats.last_serial - back) if stats else 1
        self.both("trim_through", client_id, serial, epoch=self._owner(client_id))

    @rule(client_id=clients)
    def discard(self, client_id: str) -> None:
        self.both("discard", client_id, epoch=self._owner(client_id))

    @rule(seconds=st.integers(0, 20))
    def wait(self, seconds: int) -> None:
        self.now_us += seconds * SECOND_US

    @rule(
        client_id=clients,
        limit=st.sampled_from([1, 2, 100]),
        bytes_max=st.sampled_from([1, 50, 10_000]),
        back=st.integers(0, 6),
    )
    def read(self, client_id: str, limit: int, bytes_max: int, back: int) -> None:
        stats = self.run(self.model.stats(client_id))
        after = max(-1, stats.last_serial - back) if stats and back < 5 else -1
        pages = [
            self.run(
                read_all(
                    queue,
                    client_id,
                    after=after,
                    limit=limit,
                    bytes_max=bytes_max,
                    now_us=self.now_us,
                )
            )
            for queue in (self.model, self.real)
        ]
        expected, got = ([_seen(entry) for entry in page] for page in pages)
        assert got == expected

    @rule()
    def sweep(self) -> None:
        self.both("sweep", now_us=self.now_us, limit=1000)

    @invariant()
    def the_numbers_agree(self) -> None:
        for client_id in ("a", "b", "{x}y"):
            expected = self.run(self.model.stats(client_id))
            got = self.run(self.real.stats(client_id))
            assert (got and _counts(got)) == (expected and _counts(expected))

    def teardown(self) -> None:
        try:
            for client_id in ("a", "b", "{x}y"):
                self.read(client_id, limit=3, bytes_max=10_000, back=6)
            self.run(self.opened.__aexit__(None, None, None))
        finally:
            self.runner.close()

    def _moment(self, seconds: int) -> int:
        return self.now_us + seconds * SECOND_US if seconds else 0

    def _owner(self, client_id: str) -> int:
        stats = self.run(self.model.stats(client_id))
        return stats.epoch if stats else 0


def _counts(stats: Any) -> tuple[object, ...]:
    return (
        stats.client_id,
        stats.publish_count,
        stats.pubrel_count,
        stats.last_packet_id,
        stats.last_serial,
        stats.last_position,
        stats.epoch,
    )


@pytest.mark.slow
@pytest.mark.timeout(900)  # to find the shortest history that fails
# Without batches the same statements run; which requests share one is not this test's matter.
@pytest.mark.parametrize("name", parameters(without=("postgres-unbatched",)))
def test_every_backend_does_what_the_reference_does(
    request: pytest.FixtureRequest, name: str
) -> None:
    run_state_machine_as_test(
        lambda: QueueMachine(request, name),  # type: ignore[arg-type]
        settings=settings(
            max_examples=40,
            stateful_step_count=30,
            derandomize=True,
            phases=(Phase.explicit, Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
