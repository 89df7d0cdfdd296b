"""When a Will Message is published, and as what."""

from __future__ import annotations

from perdure.limits import SESSION_EXPIRY_NEVER_S
from perdure.model import Message, Will


def will_due_us(will: Will, *, disconnected_at_us: int, expiry_s: int) -> int:
    """Steady time at which a will is due: its delay or the session's end, whichever is first
    [MQTT-3.1.3-9]. A session that ends with the connection sends it at once (trap 43)."""
    delay_s = will.delay_s
    if expiry_s != SESSION_EXPIRY_NEVER_S:
        delay_s = min(delay_s, expiry_s)
    return disconnected_at_us + delay_s * 1_000_000


def will_message(will: Will, client_id: str, now_us: int, published_us: int) -> Message:
    """The application message of a will; its expiry starts when it is published (3.1.3.2.4).

    Args:
        will: of the session.
        client_id: of the session.
        now_us: steady time.
        published_us: time of publishing, for people.
    """
    return Message(
        will.topic,
        will.payload,
        will.qos,
        will.retain,
        client_id,
        will.properties,
        now_us + will.expiry_s * 1_000_000 if will.expiry_s is not None else 0,
        published_us,
    )
