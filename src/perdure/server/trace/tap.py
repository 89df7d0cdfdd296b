"""Stands between a transport and its connection, and tells a trace what goes by.

It decodes what passes once more and changes nothing. What it cannot decode ends the listening, and
never the connection.
"""

from __future__ import annotations

from typing import Any, Final, Protocol, final

from perdure.broker.runtime.stream import ByteStream, StreamHandler
from perdure.limits import REMAINING_LENGTH_MAX
from perdure.mqtt.decode import Decoder
from perdure.mqtt.packets import (
    Ack,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Publish,
    Suback,
    Subscribe,
    Unsubscribe,
)
from perdure.mqtt.reason_codes import UNSPECIFIED_ERROR

ACK_NAMES: Final = {4: "PUBACK", 5: "PUBREC", 6: "PUBREL", 7: "PUBCOMP"}


class TraceRecorder(Protocol):
    """Who is told."""

    def record(
        self, client_id: str, event: str, topic: str, payload: bytes | None, fields: dict[str, Any]
    ) -> None:
        """Something went by."""
        ...

    def wants_client(self, client_id: str) -> bool:
        """Whether anybody wants to know of a client."""
        ...

    def forget(self, tap: Tap) -> None:
        """It listens no more."""
        ...


@final
class _Direction:
    """One way through a tap: its decoder, its aliases, topics by packet identifier."""

    def __init__(self, *, from_client: bool) -> None:
        self.decoder = Decoder(server_side=from_client, packet_size_max=REMAINING_LENGTH_MAX)
        self._aliases: dict[int, str] = {}
        self.topics: dict[int, str] = {}

    def topic_of(self, packet: Publish) -> str:
        """The topic of a PUBLISH, by its alias where it has none."""
        if packet.topic_alias:
            if packet.topic:
                self._aliases[packet.topic_alias] = packet.topic
            return self._aliases.get(packet.topic_alias, "")
        return packet.topic


@final
class Tap:
    """A ``ByteStream`` to the connection, a ``StreamHandler`` to the transport.

    Args:
        traces: told what goes by.
        stream: the transport.
    """

    def __init__(self, traces: TraceRecorder, stream: ByteStream) -> None:
        self._traces = traces
        self._stream = stream
        self._shell: Any = stream
        self.handler: StreamHandler = _Nobody()
        self._client_id = ""
        self._listens = True
        self._aligned = True
        self._inbound = _Direction(from_client=True)
        self._outbound = _Direction(from_client=False)

    @classmethod
    def on_open(cls, traces: TraceRecorder, shell: Any) -> Tap:
        """On a connection that is open: from the next packet on, in both directions."""
        tap = cls(traces, shell)
        connection: Any = shell.handler
        tap.handler = connection
        tap._client_id = connection.session.client_id
        version = connection.sender.version
        for way in (tap._inbound, tap._outbound):
            way.decoder.version = version
            way.decoder.connected = True
        tap._aligned = tap._is_at_a_packet()
        shell.handler = tap
        connection.sender._sink = tap
        return tap

    @property
    def session(self) -> Any:
        """As a connection has it, for those who look through the transports; never another tap."""
        return None

    def detach(self) -> None:
        """Stand in nobody's way any more."""
        self._listens = False
        self._shell.handler = self.handler
        sender = getattr(self.handler, "sender", None)
        if sender is not None:
            sender._sink = self._stream
        self._traces.forget(self)

    # To the transport.

    def receive(self, data: bytes) -> None:
        """From the client."""
        if self._listens and self._aligned:
            self._see(self._inbound, data, self._from_client)
        self.handler.receive(data)
        if not self._aligned:
            self._aligned = self._is_at_a_packet()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The transport is gone."""
        if self._listens and self._client_id:
            self._tell("closed", detail=str(exc) if exc is not None else None)
        self._listens = False
        self._traces.forget(self)
        self.handler.connection_lost(exc)

    def pause_writing(self) -> None:
        """Passed on."""
        self.handler.pause_writing()

    def resume_writing(self) -> None:
        """Passed on."""
        self.handler.resume_writing()

    # To the connection; ``close`` comes from both sides.

    def write(self, data: bytes) -> None:
        """To the client."""
        self._stream.write(data)
        if self._listens:
            self._see(self._outbound, data, self._to_client)

    def close(self, *reason_code: int) -> None:
        """Of the handler with a reason code, of the stream without one."""
        if reason_code:
            self.handler.close(*reason_code)
        else:
            self._stream.close()

    def abort(self) -> None:
        """Passed on."""
        self._stream.abort()

    def pause_reading(self) -> None:
        """Passed on."""
        self._stream.pause_reading()

    def resume_reading(self) -> None:
        """Passed on."""
        self._stream.resume_reading()

    def write_buffer_size(self) -> int:
        """Passed on."""
        return self._stream.write_buffer_size()

    def has_ended(self) -> bool:
        """Passed on."""
        return self._stream.has_ended()

    # Inside.

    def _is_at_a_packet(self) -> bool:
        decoder: Any = self.handler._decoder  # type: ignore[attr-defined]
        return not decoder.incomplete_bytes and not decoder.has_more

    def _see(self, way: _Direction, data: bytes, tell: Any) -> None:
        try:
            packets = way.decoder.feed(data)
            while True:
                for packet in packets:
                    tell(packet)
                if not self._listens or not way.decoder.has_more:
                    break
                packets = way.decoder.feed(b"")
            if way.decoder.failure is not None:
                self._tell("undecodable", detail=str(way.decoder.failure))
                self._listens = False
        except Exception as error:  # noqa: BLE001 - listening costs the connection nothing
            self._tell("undecodable", detail=repr(error))
            self._listens = False

    def _from_client(self, packet: Packet) -> None:
        inbound = self._inbound
        if isinstance(packet, Publish):
            topic = inbound.topic_of(packet)
            inbound.topics[packet.packet_id] = topic
            self._publish("publish", packet, topic)
        elif isinstance(packet, Ack):
            topic = self._outbound.topics.get(packet.packet_id, "")
            self._ack("acked", packet, topic)
        elif isinstance(packet, Connect):
            self._connected(packet)
        elif isinstance(packet, Subscribe):
            asked = ", ".join(f"{each.filter} (QoS {each.qos})" for each in packet.filters)
            self._tell("subscribe", packet_id=packet.packet_id, detail=asked)
        elif isinstance(packet, Unsubscribe):
            asked = ", ".join(packet.filters)
            self._tell("unsubscribe", packet_id=packet.packet_id, detail=asked)
        elif isinstance(packet, Disconnect):
            self._tell("disconnect", reason_code=packet.reason, detail="by the client")

    def _to_client(self, packet: Packet) -> None:
        outbound = self._outbound
        if isinstance(packet, Publish):
            topic = outbound.topic_of(packet)
            outbound.topics[packet.packet_id] = topic
            self._publish("sent", packet, topic)
        elif isinstance(packet, Ack):
            event = "refused" if packet.reason >= UNSPECIFIED_ERROR else "answered"
            self._ack(event, packet, self._inbound.topics.get(packet.packet_id, ""))
        elif isinstance(packet, Connack):
            self._tell("connack", reason_code=packet.reason)
            outbound.decoder.version = self._inbound.decoder.version
        elif isinstance(packet, Suback):
            codes = ", ".join(f"0x{code:02x}" for code in packet.reasons)
            self._tell("suback", packet_id=packet.packet_id, detail=codes)
        elif isinstance(packet, Disconnect):
            self._tell("disconnect", reason_code=packet.reason, detail="by the broker")

    def _connected(self, packet: Connect) -> None:
        self._client_id = packet.client_id
        self._outbound.decoder.version = packet.protocol
        if not self._traces.wants_client(packet.client_id):
            self.detach()
            return
        what = f"MQTT {packet.protocol}, clean start {packet.clean_start}, user {packet.username}"
        self._tell("connect", detail=what)

    def _publish(self, event: str, packet: Publish, topic: str) -> None:
        fields = {
            "qos": packet.qos,
            "retain": packet.retain,
            "dup": packet.dup,
            "packet_id": packet.packet_id or None,
        }
        self._traces.record(self._client_id, event, topic, bytes(packet.payload), fields)

    def _ack(self, event: str, packet: Ack, topic: str) -> None:
        fields = {
            "packet_id": packet.packet_id,
            "reason_code": packet.reason,
            "detail": ACK_NAMES.get(packet.kind),
        }
        self._traces.record(self._client_id, event, topic, None, fields)

    def _tell(self, event: str, **fields: Any) -> None:
        self._traces.record(self._client_id, event, "", None, fields)


class _Nobody:
    """Before the connection is made."""

    def receive(self, data: bytes) -> None: ...

    def connection_lost(self, exc: BaseException | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def close(self, reason_code: int) -> None: ...
