"""What passed between a bridge and another broker, and whether that explains the bridge's log.

A proxy hands on more than reaches a process that is killed, so of each connection an unknown
beginning was taken: at least what the bridge acknowledged there. The log must be these beginnings,
one after another, without messages of QoS 2 that came again before they were released.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias, final

from tests.support import packets
from tests.support.packets import Splitter

_ANSWERS = {
    packets.PUBACK: packets.PUBLISH,
    packets.PUBREC: packets.PUBLISH,
    packets.PUBCOMP: packets.PUBREL,
}
_State: TypeAlias = tuple[int, frozenset[int]]
"""How much of the log is explained, and what awaits its release."""


class _Step(NamedTuple):
    """What the other broker sent: CONNACK without a session, PUBLISH or PUBREL."""

    kind: int
    packet_id: int = 0
    qos: int = 0
    payload: bytes = b""


@final
class Tape:
    """Records packets; its ``record`` is for ``TcpProxy``.

    Args:
        protocol: 4 or 5.

    Attributes:
        is_subscribed: the other broker has confirmed a subscription.
        sent_after_release: payloads of QoS 2 that the bridge sent again although it had released
            them.
    """

    def __init__(self, protocol: int) -> None:
        self.is_subscribed = False
        self.sent_after_release: list[bytes] = []
        self._protocol = protocol
        self._splitters: defaultdict[tuple[int, bool], Splitter] = defaultdict(Splitter)
        self._steps: defaultdict[int, list[_Step]] = defaultdict(list)
        self._taken: defaultdict[int, int] = defaultdict(int)
        self._sent: dict[int, bytes] = {}
        self._released: set[bytes] = set()

    def record(self, connection: int, is_back: bool, data: bytes) -> None:
        """Bytes have passed, ``is_back`` from the other broker."""
        for packet in self._splitters[connection, is_back].feed(data):
            if is_back:
                self._came(self._steps[connection], packet)
            else:
                self._went(connection, packet)

    def explains(self, log: Sequence[bytes]) -> bool:
        """Whether payloads are what the bridge can have taken, in that order, with its repeats."""
        states: set[_State] = {(0, frozenset())}
        for connection, steps in sorted(self._steps.items()):
            least = self._taken[connection]
            states = {end for state in states for end in _ends(steps, least, log, state)}
        return len(log) in {place for place, _ in states}

    def _came(self, steps: list[_Step], packet: packets.Packet) -> None:
        if packet.kind == packets.PUBLISH:
            message = packets.read_publish(packet, protocol=self._protocol)
            steps.append(_Step(packet.kind, message.packet_id, message.qos, message.payload))
        elif packet.kind == packets.PUBREL:
            steps.append(_Step(packet.kind, packets.read_acknowledgement(packet)[0]))
        elif packet.kind == packets.CONNACK and not packets.read_connack(packet)[0]:
            steps.append(_Step(packet.kind))
        elif packet.kind == packets.SUBACK:
            self.is_subscribed = True

    def _went(self, connection: int, packet: packets.Packet) -> None:
        if packet.kind == packets.PUBLISH:
            message = packets.read_publish(packet, protocol=self._protocol)
            self._sent[message.packet_id] = message.payload
            if message.payload in self._released:
                self.sent_after_release.append(message.payload)
        elif packet.kind == packets.PUBREL:
            packet_id, _ = packets.read_acknowledgement(packet)
            self._released.add(self._sent.get(packet_id, b""))
        elif packet.kind in _ANSWERS:
            packet_id, _ = packets.read_acknowledgement(packet)
            steps = self._steps[connection]
            for place in range(len(steps), 0, -1):
                if steps[place - 1][:2] == (_ANSWERS[packet.kind], packet_id):
                    self._taken[connection] = max(self._taken[connection], place)
                    break


def _ends(
    steps: Sequence[_Step], least: int, log: Sequence[bytes], state: _State
) -> Iterator[_State]:
    """How a beginning of what came, of at least so many, may leave things."""
    place, awaiting = state
    if not least:
        yield state
    for count, step in enumerate(steps, 1):
        if step.kind == packets.CONNACK:
            awaiting = frozenset()
        elif step.kind == packets.PUBREL:
            awaiting -= {step.packet_id}
        elif step.qos < 2 or step.packet_id not in awaiting:
            if place == len(log) or log[place] != step.payload:
                return
            place += 1
            awaiting |= {step.packet_id} if step.qos == 2 else set()
        if count >= least:
            yield place, awaiting
