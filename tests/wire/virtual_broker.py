"""A broker in this process on virtual time, behind a virtual network.

The whole broker runs, on the reference store, with its settings read as the server reads them;
what is left out is sockets, the process around it and RocksDB, for which a part of the cases runs
on ``process_broker`` too. Time passes only while a peer waits or a case says so, and the network
cuts and delays what is sent as the seed decides. Beside ``conftest`` the only part of the cases
that imports ``perdure``.
"""

from __future__ import annotations

from typing import ClassVar, Final, final

from perdure.broker.auth.authenticate import AnonymousPolicy
from perdure.config.load import load
from tests.support.network import NetworkProfile, Wire
from tests.support.sim_broker import SimBroker
from tests.wire.harness import Broker, Options
from tests.wire.transport import Transport

SECOND_US: Final = 1_000_000

BUFFER_BYTES: Final = 1024 * 1024
"""What a broker may write ahead of a client that does not read: as much as to a socket."""

CLOSE_US: Final = 10_000
"""How long a client that closes lets time pass, so that the broker knows before anyone goes on: as
on the loopback of a machine. A broker that reads nothing of it hears later."""

SETTLE_US: Final = SECOND_US
"""How long a broker is watched after the clients of a case have gone."""


def is_possible(options: Options) -> bool:
    """Whether such a broker can be virtual: passwords are checked by threads."""
    return not options.users and not options.files


@final
class VirtualTransport:
    """A client's end of a wire.

    Args:
        sim: where it connects.
    """

    patience_s: ClassVar[float] = 0.0

    def __init__(self, sim: SimBroker) -> None:
        self._sim = sim
        self._buffer = bytearray()
        self._is_ended = False
        self._is_closed = False
        wire = sim.network.connect(self)
        if wire is None:
            raise ConnectionRefusedError("no broker listens")
        self._wire: Wire = wire

    # The network calls these.

    def received(self, data: bytes) -> None:
        """Bytes from the broker."""
        self._buffer += data

    def lost(self) -> None:
        """The stream has ended."""
        self._is_ended = True

    # The peer calls these.

    def now_s(self) -> float:
        """Virtual time."""
        return self._sim.clock.monotonic_us() / SECOND_US

    def send(self, data: bytes) -> None:
        """Hands bytes to the network; they travel when someone waits."""
        self._wire.send(data)

    def receive(self, timeout_s: float) -> bytes:
        """Lets time pass until there are bytes; empty at the end of the stream.

        Raises:
            TimeoutError: nothing came in that time, all of which has passed.
        """
        limit_us = max(0, round(timeout_s * SECOND_US))
        end_us = self._sim.clock.monotonic_us() + limit_us
        if not self._sim.run_until(lambda: bool(self._buffer) or self._is_ended, limit_us=limit_us):
            self._sim.run_for(end_us - self._sim.clock.monotonic_us())
            raise TimeoutError
        found = bytes(self._buffer)
        self._buffer.clear()
        return found

    def close(self) -> None:
        """Closes after what was sent."""
        if not self._is_closed:
            self._is_closed = True
            self._wire.hang_up()
            self._let_the_broker_know()

    def abort(self) -> None:
        """Closes with a reset that overtakes nothing that was sent."""
        if not self._is_closed:
            self._is_closed = True
            self._wire.reset()
            self._let_the_broker_know()

    def half_close(self) -> None:
        """Ends our direction only."""
        self._wire.end_sending()
        self._let_the_broker_know()

    def _let_the_broker_know(self) -> None:
        self._sim.run_until(lambda: self._wire.is_left, limit_us=CLOSE_US)


@final
class VirtualBroker(Broker):
    """One broker on a store in memory; ``kill9`` leaves what was written.

    Args:
        options: how it is configured; ``is_possible`` must hold.
        seed: of everything that is chance.

    Attributes:
        sim: the broker's process, disk and network.
    """

    def __init__(self, options: Options, seed: int) -> None:
        super().__init__()
        assert is_possible(options), "passwords and access files need a process"
        sets = [f"{name}={value}" for name, value in options.settings.items()]
        config = load(environ={}, sets=sets).config
        self.sim = SimBroker(
            seed,
            config=config,
            network_profile=NetworkProfile(buffer_bytes=BUFFER_BYTES),
            authenticator=AnonymousPolicy(config.auth.allow_anonymous),
        )
        self._events_checked = 0

    def start(self) -> None:
        """Starts it."""
        self.sim.start()

    def stop(self) -> int:
        """Ends it in order."""
        self.sim.stop()
        for peer in self._peers:
            peer.wait_end()
        return 0

    def kill9(self, *, start: bool = True) -> None:
        """It dies; what it had written stays."""
        self.sim.kill()
        if start:
            self.start()

    def close(self) -> None:
        """Ends it for good."""
        if self.sim.broker is not None:
            self.sim.kill()

    def check_health(self) -> None:
        """Lets the broker finish what it does, and fails if it logged an exception."""
        self.sim.run_for(SETTLE_US)
        events = self.sim.events[self._events_checked :]
        self._events_checked = len(self.sim.events)
        failures = [(event, values) for event, values in events if values.get("exc_info")]
        assert not failures, f"unhandled: {failures}"

    def elapse(self, seconds: float) -> None:
        """Lets virtual time pass."""
        self.sim.run_for(round(seconds * SECOND_US))

    def now_s(self) -> float:
        """Virtual time."""
        return self.sim.clock.monotonic_us() / SECOND_US

    def now_us(self) -> int:
        """Virtual wall time."""
        return self.sim.clock.now_us()

    def _transport(self) -> Transport:
        return VirtualTransport(self.sim)
