"""A blocking client made of one raw connection, which speaks or breaks the protocol.

It sends any bytes, reads whole packets, and says what it expects next. Silence is proven by a
PINGREQ fence, never by waiting. Nothing here may import ``perdure``.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self, final

from tests.wire.packets import V3, V5, Kind, Packets, Properties
from tests.wire.reader import Packet, read
from tests.wire.transport import Transport

SUBJECT: Final = os.environ.get("PERDURE_WIRE_BROKER", "perdure")
"""Which broker runs: ``perdure`` or ``mosquitto``."""

TIMEOUT_S: Final = 5.0 if SUBJECT == "perdure" else 1.0
"""How long a packet or a close may take before the case fails, in the broker's time. A broker on
this machine's clock gets more (``Transport.patience_s``)."""

REASONS_REQUIRED: Final = SUBJECT == "perdure"
"""4.13: a reason code before the close is a SHOULD; our broker has to, another may just close."""


@final
class Peer:
    """One blocking connection that speaks, or breaks, one protocol version.

    Args:
        transport: what its bytes travel on.
        version: 4 for MQTT 3.1.1, 5 for MQTT 5.0.
    """

    def __init__(self, transport: Transport, version: int) -> None:
        self.version = version
        self.build: Packets = V5 if version >= 5 else V3
        self.connack = Packet(kind=Kind.CONNACK, flags=0, raw=b"")
        self._transport = transport
        self._buffer = bytearray()
        self._stash: deque[Packet] = deque()
        self._ended = False
        self._packet_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    # --- bytes --------------------------------------------------------------------------

    def send(self, *pieces: bytes) -> None:
        """Sends bytes; a broker that has closed already is found out by the next read."""
        self._transport.send(b"".join(pieces))

    def send_slowly(self, data: bytes) -> None:
        """Sends one byte per segment: chunking must not matter."""
        for index in range(len(data)):
            self.send(data[index : index + 1])

    def close(self) -> None:
        """Closes without DISCONNECT."""
        self._transport.close()

    def abort(self) -> None:
        """Closes as a reset connection does."""
        self._transport.abort()

    def half_close(self) -> None:
        """Ends our direction only; the broker's can still be read."""
        self._transport.half_close()

    def wait_end(self) -> None:
        """Reads up to the end of the stream, for later expectations, and ends our direction."""
        with contextlib.suppress(OSError):
            while chunk := self._transport.receive(max(TIMEOUT_S, self._transport.patience_s)):
                self._buffer += chunk
            self._transport.half_close()
        self._ended = True

    def receive(self, timeout_s: float = TIMEOUT_S) -> Packet | None:
        """The next packet, or None at the end of the stream."""
        if self._stash:
            return self._stash.popleft()
        return self._read(timeout_s)

    def _read(self, timeout_s: float) -> Packet | None:
        deadline = self._deadline(timeout_s)
        while True:
            size = _packet_size(self._buffer)
            if size is not None and len(self._buffer) >= size:
                raw = bytes(self._buffer[:size])
                del self._buffer[:size]
                return read(raw, version=self.version)
            if self._ended:
                assert not self._buffer, f"closed inside a packet: {self._buffer.hex(' ')}"
                return None
            self._read_more(deadline)

    def _deadline(self, timeout_s: float) -> float:
        return self._transport.now_s() + max(timeout_s, self._transport.patience_s)

    def _read_more(self, deadline: float) -> None:
        try:
            chunk = self._transport.receive(deadline - self._transport.now_s())
        except TimeoutError:
            raise AssertionError(f"nothing came in time after {self._buffer.hex(' ')!r}") from None
        self._ended = not chunk
        self._buffer += chunk

    def receive_raw(self) -> bytes:
        """All bytes up to the end of the stream, whatever they are."""
        assert not self._stash, self._stash
        while not self._ended:
            self._read_more(self._deadline(TIMEOUT_S))
        return bytes(self._buffer)

    # --- expectations -------------------------------------------------------------------

    def expect(self, data: bytes) -> None:
        """The next packet is exactly these bytes."""
        found = self.receive()
        assert found is not None, f"closed, expected {data.hex(' ')}"
        assert found.raw == data, f"expected {data.hex(' ')}, got {found.raw.hex(' ')}"

    def expect_packet(
        self, kind: Kind, *, timeout_s: float = TIMEOUT_S, **fields: object
    ) -> Packet:
        """The next packet has this type and these fields (``packet_id=3, payload=b"x"``)."""
        found = self.receive(timeout_s)
        assert found is not None, f"closed, expected {kind.name} {fields}"
        assert found.kind is kind, f"expected {kind.name} {fields}, got {found}"
        _check_fields(found, fields)
        return found

    def expect_publish(
        self, topic: str, payload: bytes, *, timeout_s: float = TIMEOUT_S, **fields: object
    ) -> Packet:
        """The next packet is this PUBLISH."""
        fields |= {"topic": topic, "payload": payload}
        return self.expect_packet(Kind.PUBLISH, timeout_s=timeout_s, **fields)

    def expect_connack(self, reason: int, *, session_present: bool | None = None) -> Packet:
        """The next packet is a CONNACK with this code."""
        self.connack = found = self.expect_packet(Kind.CONNACK, reason=reason)
        if reason:
            assert not found.session_present, "Session Present with a refusal [MQTT-3.2.2-6]"
        if session_present is not None:
            assert found.session_present is session_present, f"Session Present: {found}"
        return found

    def expect_ack(self, kind: Kind, packet_id: int) -> Packet:
        """The next packet acknowledges without an error, in the shortest form that there is.

        In 5.0 a PUBACK or PUBREC may say that nobody subscribes [MQTT-3.4.2-1].
        """
        found = self.expect_packet(kind, packet_id=packet_id)
        success = (0x00, 0x10) if kind in (Kind.PUBACK, Kind.PUBREC) else (0x00,)
        assert found.reason in success, f"expected success, got {found}"
        tail = bytes([found.reason]) if found.reason else b""
        raw = bytes([found.raw[0], 2 + len(tail)]) + packet_id.to_bytes(2, "big") + tail
        assert found.raw == raw, f"expected {raw.hex(' ')}, got {found.raw.hex(' ')}"
        return found

    def expect_silence(self, seconds: float) -> None:
        """Nothing comes for so long: of a broker that cannot even answer a PINGREQ."""
        try:
            found = self._transport.receive(seconds)
        except TimeoutError:
            return
        raise AssertionError(f"expected silence, got {found.hex(' ')!r}")

    def expect_closed(self, timeout_s: float = TIMEOUT_S) -> None:
        """The broker closes the connection and sends nothing before."""
        found = self.receive(timeout_s)
        assert found is None, f"expected the close, got {found}"

    def expect_refusal(self, *reasons: int, timeout_s: float = TIMEOUT_S) -> Packet | None:
        """5.0: a DISCONNECT with one of these codes, then the close; 3.1.1: the close."""
        found = None
        if self.version >= 5:
            found = self.receive(timeout_s)
            if found is None and not REASONS_REQUIRED:
                return None
            assert found is not None, "closed without a DISCONNECT"
            assert found.kind is Kind.DISCONNECT, f"expected DISCONNECT, got {found}"
            wanted = ", ".join(f"{code:#04x}" for code in reasons)
            assert found.reason in reasons, f"expected {wanted}, got {found.reason:#04x}: {found}"
        self.expect_closed(timeout_s)
        return found

    def expect_refused_connect(self, *reasons: int) -> Packet:
        """A CONNACK with one of these codes and without Session Present, then the close."""
        found = self.receive()
        if found is None and not REASONS_REQUIRED:
            return Packet(kind=Kind.CONNACK, flags=0, raw=b"", reason=reasons[0])
        assert found is not None, "closed without a CONNACK"
        assert found.kind is Kind.CONNACK, f"expected CONNACK, got {found}"
        assert not found.session_present, "Session Present with a refusal [MQTT-3.2.2-6]"
        wanted = ", ".join(f"{code:#04x}" for code in reasons)
        assert found.reason in reasons, f"expected {wanted}, got {found.reason:#04x}: {found}"
        self.expect_closed()
        return found

    def expect_nothing(self) -> None:
        """Nothing is under way to us: the answer to a PINGREQ is the next packet."""
        self.send(b"\xc0\x00")
        found = self.receive()
        assert found is not None, "closed, expected PINGRESP"
        assert found.kind is Kind.PINGRESP, f"expected silence, got {found}"

    def take(self, kind: Kind, packet_id: int | None = None) -> Packet:
        """The first packet of this type; what comes before it stays for later reads."""

        def matches(candidate: Packet) -> bool:
            return candidate.kind is kind and packet_id in (None, candidate.packet_id)

        return self._take(matches, f"{kind.name} {packet_id}")

    def _take(self, matches: Callable[[Packet], bool], wanted: str) -> Packet:
        for index, candidate in enumerate(self._stash):
            if matches(candidate):
                del self._stash[index]
                return candidate
        while True:
            found = self._read(TIMEOUT_S)
            assert found is not None, f"closed, expected {wanted}, got before {self._stash}"
            if matches(found):
                return found
            self._stash.append(found)

    # --- whole exchanges ----------------------------------------------------------------

    def next_packet_id(self) -> int:
        """A packet identifier of our own that was not used on this connection."""
        self._packet_id += 1
        return self._packet_id

    def subscribe(
        self, *filters: str | tuple[str, int], properties: Properties = (), codes: object = None
    ) -> Packet:
        """Subscribes (options byte 2, QoS 2, for a plain string) and returns the SUBACK.

        Args:
            *filters: filters, or pairs of filter and options byte.
            properties: SUBSCRIBE properties.
            codes: the codes that the SUBACK has to bear; else all have to be grants.
        """
        packet_id = self.next_packet_id()
        pairs = [(f, 2) if isinstance(f, str) else f for f in filters]
        self.send(self.build.subscribe(*pairs, packet_id=packet_id, properties=properties))
        suback = self.take(Kind.SUBACK, packet_id)
        if codes is None:
            codes = tuple(options & 3 for _, options in pairs)
        assert suback.reasons == codes, f"expected {codes}, got {suback}"
        return suback

    def unsubscribe(self, *filters: str, codes: object = None) -> Packet:
        """Unsubscribes and returns the UNSUBACK.

        Args:
            *filters: filters.
            codes: the codes that the UNSUBACK of 5.0 has to bear; else all must have existed.
        """
        packet_id = self.next_packet_id()
        self.send(self.build.unsubscribe(*filters, packet_id=packet_id))
        unsuback = self.take(Kind.UNSUBACK, packet_id)
        if self.version < 5:
            codes = ()  # [MQTT-3.11]: an UNSUBACK of 3.1.1 has no payload
        elif codes is None:
            codes = (0,) * len(filters)
        assert unsuback.reasons == codes, f"expected {codes}, got {unsuback}"
        return unsuback

    def publish(
        self,
        topic: str,
        payload: bytes = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        properties: Properties = (),
    ) -> Packet | None:
        """Publishes and completes the exchange; QoS 0 ends with a PINGREQ fence.

        Returns:
            The PUBACK or PUBREC, whose code must be 0x00 or 0x10 (no matching subscribers).
        """
        packet_id = self.next_packet_id() if qos else None
        self.send(
            self.build.publish(
                topic, payload, qos=qos, packet_id=packet_id, retain=retain, properties=properties
            )
        )
        if packet_id is None:
            self.fence()
            return None
        answer = self.take(Kind.PUBACK if qos == 1 else Kind.PUBREC, packet_id)
        assert answer.reason in (0x00, 0x10), answer
        if qos == 2:
            self.send(self.build.pubrel(packet_id))
            completed = self.take(Kind.PUBCOMP, packet_id)
            assert completed.reason == 0, completed
        return answer

    def receive_publish(self, topic: str, payload: bytes, **fields: Any) -> Packet:
        """The next packet is this PUBLISH, and the exchange it begins is completed."""
        found = self.expect_publish(topic, payload, **fields)
        self.acknowledge(found)
        return found

    def take_publish(self) -> Packet:
        """The first PUBLISH, whatever it is; the exchange it begins is completed."""
        found = self.take(Kind.PUBLISH)
        self.acknowledge(found)
        return found

    def drain(self) -> list[Packet]:
        """All packets that came before a PINGREQ fence."""
        self.fence()
        found = list(self._stash)
        self._stash.clear()
        return found

    def acknowledge(self, found: Packet) -> None:
        """Completes the exchange that a PUBLISH began."""
        if found.qos == 1:
            self.send(self.build.puback(found.packet_id))
        elif found.qos == 2:
            self.send(self.build.pubrec(found.packet_id))
            released = self.take(Kind.PUBREL, found.packet_id)
            assert released.reason == 0, released
            self.send(self.build.pubcomp(found.packet_id))

    def fence(self) -> None:
        """Returns when the broker has taken in all that we sent."""
        self.send(b"\xc0\x00")
        self.take(Kind.PINGRESP)

    def disconnect(self, reason: int | None = None, properties: Properties | None = None) -> None:
        """Sends DISCONNECT and reads until the broker has closed."""
        self.send(self.build.disconnect(reason, properties))
        self.half_close()
        while self.receive() is not None:
            pass
        self.close()


def _packet_size(buffer: bytearray) -> int | None:
    """Bytes of the packet at the front, or None while its length is not complete."""
    length = 0
    for index in range(1, min(len(buffer), 5)):
        length |= (buffer[index] & 0x7F) << 7 * (index - 1)
        if buffer[index] < 0x80:
            return 1 + index + length
    assert len(buffer) < 5, f"remaining length of more than four bytes: {buffer[:5].hex(' ')}"
    return None


def _check_fields(found: Packet, fields: Mapping[str, object]) -> None:
    for name, wanted in fields.items():
        value: object = getattr(found, name)
        assert value == wanted, f"{name}: expected {wanted!r}, got {value!r} in {found}"
