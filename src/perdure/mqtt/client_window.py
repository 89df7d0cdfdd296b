"""The outbound half of a client's session: packet identifiers, the inflight window, resending.

It knows which message may go out next and what becomes of it; it does not send anything.

::

    offer -> pending -> take -> inflight -> (QoS 2: release ->) settle
                          ^         |
                          +- resend-+   after a resumed connection, in the original order

Invariants: a packet identifier is never in use twice ([MQTT-2.2.1-3], [MQTT-2.2.1-4]); no more
messages are out than the server's receive maximum ([MQTT-3.3.4-7]).
"""

from __future__ import annotations

from collections import deque
from typing import final

from perdure.errors import MqttError, UsageError
from perdure.limits import PACKET_ID_MAX
from perdure.mqtt.encode import encode
from perdure.mqtt.packets import Properties, Publish
from perdure.mqtt.reason_codes import PACKET_TOO_LARGE, QOS_NOT_SUPPORTED, RETAIN_NOT_SUPPORTED


@final
class Outgoing:
    """One message of QoS 1 or 2 on its way.

    Attributes:
        handle: the caller's name for it.
        publish: the packet; its identifier is set when it first goes out.
        released: its PUBREC came: from now on it is a PUBREL.
        counted: it takes a place in the window of this connection.
    """

    __slots__ = ("counted", "handle", "publish", "released")

    def __init__(self, handle: int, publish: Publish) -> None:
        self.handle: int = handle
        self.publish: Publish = publish
        self.released: bool = False
        self.counted: bool = False


@final
class SendWindow:
    """What a client has sent, is sending and has still to send.

    Args:
        inflight_max: our own bound on the window, beside the server's.
    """

    __slots__ = (
        "_handle",
        "_inflight",
        "_inflight_max",
        "_last_id",
        "_pending",
        "_requests",
        "_resend",
        "_used",
        "_window",
    )

    def __init__(self, inflight_max: int = PACKET_ID_MAX) -> None:
        self._inflight_max: int = inflight_max
        self._window: int = 0  # closed until the server has answered
        self._used: int = 0
        self._handle: int = 0
        self._last_id: int = 0
        self._pending: deque[Outgoing] = deque()
        self._resend: deque[Outgoing] = deque()
        self._inflight: dict[int, Outgoing] = {}  # in the order in which they first went out
        self._requests: set[int] = set()  # identifiers of SUBSCRIBE and UNSUBSCRIBE

    @property
    def unsettled_count(self) -> int:
        """Messages that are not settled yet."""
        return len(self._pending) + len(self._inflight)

    def offer(self, publish: Publish) -> int:
        """Take a message of QoS 1 or 2; returns its handle."""
        self._handle += 1
        self._pending.append(Outgoing(self._handle, publish))
        return self._handle

    def take(self) -> Outgoing | None:
        """The next message (or PUBREL) to send, None if there is none or the window is full."""
        while self._resend and self.find(self._resend[0].publish.packet_id) is not self._resend[0]:
            self._resend.popleft()  # settled before it went out again
        if self._resend:
            entry = self._resend[0]
            if entry.released:
                # A PUBREL takes no place: the quota counts PUBLISH packets (section 4.9).
                return self._resend.popleft()
            if self._used >= self._window:
                return None
            self._resend.popleft()
            entry.publish.dup = True  # [MQTT-3.3.1-1]
        elif self._pending:
            if self._used >= self._window:
                return None
            packet_id = self._free_id()
            if not packet_id:
                return None
            entry = self._pending.popleft()
            entry.publish.packet_id = packet_id
            self._inflight[packet_id] = entry
        else:
            return None
        entry.counted = True
        self._used += 1
        return entry

    def find(self, packet_id: int) -> Outgoing | None:
        """The message in flight with this identifier."""
        return self._inflight.get(packet_id)

    def settle(self, entry: Outgoing) -> None:
        """The message is done, well or not: its identifier is free again."""
        del self._inflight[entry.publish.packet_id]
        if entry.counted:
            self._used -= 1

    def release(self, entry: Outgoing) -> None:
        """The server owns the message (PUBREC): only its identifier is still of use."""
        entry.released = True
        entry.publish.payload = b""

    def open(self, *, session_present: bool, receive_maximum: int) -> list[int]:
        """A connection was accepted.

        With a session everything in flight goes out again, in the original order
        ([MQTT-4.4.0-1], [MQTT-4.6.0-1]). Without one the server has forgotten it, and so must
        we ([MQTT-3.2.2-5]): what it had not taken over yet is published anew.

        Returns:
            Handles of the messages that are settled by this: those the server had taken over.
        """
        self._window = min(receive_maximum, self._inflight_max)
        if session_present:
            self._resend.extend(self._inflight.values())
            return []
        settled: list[int] = []
        again: list[Outgoing] = []
        for entry in self._inflight.values():
            if entry.released:
                settled.append(entry.handle)
            else:
                entry.publish.dup = False
                again.append(entry)
        self._inflight.clear()
        self._pending.extendleft(reversed(again))
        return settled

    def close(self) -> None:
        """The connection is gone: nothing is on the wire any more."""
        self._window = 0
        self._used = 0
        self._resend.clear()
        self._requests.clear()  # requests are not part of the session
        for entry in self._inflight.values():
            entry.counted = False

    def request_id(self) -> int:
        """A packet identifier for a SUBSCRIBE or UNSUBSCRIBE.

        Raises:
            UsageError: all 65,535 are in use.
        """
        packet_id = self._free_id()
        if not packet_id:
            raise UsageError("all packet identifiers are in use")
        self._requests.add(packet_id)
        return packet_id

    def answered(self, packet_id: int) -> bool:
        """A request was answered; False if there is no such request."""
        if packet_id not in self._requests:
            return False
        self._requests.remove(packet_id)
        return True

    def _free_id(self) -> int:
        """The next identifier not in use, 0 if there is none."""
        if len(self._inflight) + len(self._requests) >= PACKET_ID_MAX:
            return 0
        packet_id = self._last_id
        while True:
            packet_id = packet_id % PACKET_ID_MAX + 1
            if packet_id not in self._inflight and packet_id not in self._requests:
                self._last_id = packet_id
                return packet_id


def size_bound(publish: Publish) -> int:
    """No smaller than the packet with a topic alias, and cheap.

    A character of the topic has at most four bytes; all that is neither topic, nor forwarded
    property, nor payload has at most 21: fixed header 5, lengths 2 and 4, packet identifier 2,
    message expiry 5, topic alias 3.
    """
    return len(publish.topic) * 4 + len(publish.forward) + len(publish.payload) + 21


def check_allowed(publish: Publish, server: Properties, version: int) -> None:
    """Refuse what the server said in CONNACK that it does not take.

    Raises:
        MqttError: 0x9B, the QoS ([MQTT-3.2.2-11]); 0x9A, RETAIN ([MQTT-3.2.2-14]); 0x95, the
            size ([MQTT-3.2.2-15]).
    """
    if server.maximum_qos is not None and publish.qos > server.maximum_qos:
        raise MqttError(QOS_NOT_SUPPORTED, "the server does not take this QoS")
    if publish.retain and server.retain_available == 0:
        raise MqttError(RETAIN_NOT_SUPPORTED, "the server does not retain messages")
    limit = server.maximum_packet_size
    if limit is None:
        return
    if size_bound(publish) <= limit:
        return
    packet_id = publish.packet_id
    publish.packet_id = packet_id or (1 if publish.qos else 0)
    size = len(encode(publish, version))
    publish.packet_id = packet_id
    if size > limit:
        raise MqttError(PACKET_TOO_LARGE, f"{size} bytes are more than the server takes ({limit})")
