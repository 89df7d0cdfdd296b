"""The fixed header of a packet: what may stand in it, who may send which packet, what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perdure.errors import MqttError
from perdure.mqtt.errors import MalformedPacket, ProtocolViolation
from perdure.mqtt.packets import AUTH, CONNECT, KIND_NAMES, PUBLISH, V311
from perdure.mqtt.reason_codes import PACKET_TOO_LARGE

if TYPE_CHECKING:
    # A machine word in the compiled build; an int is asked at each step whether it is one.
    from mypy_extensions import i64

UNBOUNDED: Final = 1 << 40
"""More work than any bytes can make."""

OTHER_COST: Final = 4
"""Work of a PINGREQ and the like: it is answered by itself."""
FIELDS_COST: Final = 12
"""Work of a packet with fields (SUBSCRIBE, UNSUBSCRIBE, AUTH), to begin with."""
PUBLISH_COST_SHIFT: Final = 12
"""A PUBLISH is a unit of work, and one more for each 4 KiB."""
TOPIC_COST_SHIFT: Final = 8
"""A topic name is a unit for each 256 bytes: a longer one is not remembered, and each byte of it is
checked, split, hashed and searched for anew."""
LEVELS_FREE: Final = 8
"""Each further level of a topic is a unit: the log may have a row for it."""
FIELDS_COST_SHIFT: Final = 4
"""What is read field by field (filters, properties) is a unit for each 16 bytes."""

# Flags that the fixed header of each kind must carry ([MQTT-2.1.3-1]); -1 = any (PUBLISH).
_FLAGS: Final = (0, 0, 0, -1, 0, 0, 2, 0, 2, 0, 2, 0, 0, 0, 0, 0)

_CLIENT_SENDS: Final = frozenset((1, 3, 4, 5, 6, 7, 8, 10, 12, 14, 15))
_SERVER_SENDS: Final = frozenset((2, 3, 4, 5, 6, 7, 9, 11, 13, 14, 15))


def check_header(
    first: int, size: int, *, server_side: bool, version: int, connected: bool, size_max: int
) -> None:
    """Everything that is wrong with a packet before its body is looked at.

    Args:
        first: first byte.
        size: bytes with the fixed header; 0 = not known yet.
        server_side: the peer is a client.
        version: 4 or 5; 0 = not known yet.
        connected: a CONNECT was decoded.
        size_max: longest packet taken.

    Raises:
        MqttError: what is wrong.
    """
    kind = first >> 4
    if kind == 0:
        # 2.1.2: forbidden. No clause says which error it is; like the types that go the
        # other way it is a packet that must not be sent, whatever its flags.
        raise ProtocolViolation("the packet type 0 is forbidden")
    if kind == AUTH and version == V311:
        raise MalformedPacket("the packet type 15 is reserved")
    if not connected and kind != CONNECT:
        # [MQTT-3.1.0-1]
        raise ProtocolViolation(f"the first packet is {KIND_NAMES[kind]}, not CONNECT")
    flags = _FLAGS[kind]
    if flags >= 0 and first & 15 != flags:
        raise MalformedPacket(f"{KIND_NAMES[kind]} has wrong flags in the fixed header")
    if kind == PUBLISH and (first & 6 == 6 or first & 14 == 8):
        # [MQTT-3.3.1-4] [MQTT-3.3.1-2]
        raise MalformedPacket("PUBLISH has QoS 3, or DUP with QoS 0")
    if kind not in (_CLIENT_SENDS if server_side else _SERVER_SENDS):
        raise ProtocolViolation(f"{KIND_NAMES[kind]} goes the other way")
    if kind == CONNECT and connected:
        raise ProtocolViolation("a second CONNECT")  # [MQTT-3.1.0-2]
    if size > size_max:
        # 3.1.2.11.4, 3.2.2.3.6: answered with 0x95; not a CONNECT, whose version is not known yet.
        raise MqttError(
            PACKET_TOO_LARGE, f"{KIND_NAMES[kind]} has {size} bytes, the limit is {size_max}"
        )


def is_ack(first: i64) -> bool:
    """Whether a fixed header begins PUBACK, PUBREC, PUBREL or PUBCOMP, with the right flags."""
    return first == 0x40 or first == 0x62 or first == 0x50 or first == 0x70


def check_end(at: int, stop: int, kind: int) -> None:
    """A packet of a kind was read up to ``at``, which is where it must end."""
    if at != stop:
        raise MalformedPacket(f"{KIND_NAMES[kind]} is longer than what it holds")
