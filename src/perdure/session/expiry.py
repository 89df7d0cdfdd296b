"""Session and message expiry, in both protocol versions' terms."""

from __future__ import annotations

from perdure.limits import SESSION_EXPIRY_NEVER_S


def session_expiry_s(
    *, protocol: int, clean_start: bool, requested_s: int | None, persistent_s: int, max_s: int
) -> int:
    """The Session Expiry Interval that a CONNECT gets, seconds.

    A 3.1.1 client has none: with clean session 1 its session ends with the connection, with 0
    it lasts for ``persistent_s`` (MQTT 5.0 section 3.1.2.4 maps them so).

    Args:
        protocol: 4 or 5.
        clean_start: Clean Start, or Clean Session in 3.1.1.
        requested_s: the property of a 5.0 CONNECT, None = absent (0).
        persistent_s: for 3.1.1 sessions.
        max_s: the broker's bound; a greater wish is cut to it.
    """
    if protocol < 5:
        wanted = 0 if clean_start else persistent_s
    else:
        wanted = requested_s or 0
    return min(wanted, max_s)


def expires_at_us(disconnected_at_us: int, expiry_s: int) -> int:
    """When a session ends that was disconnected then; 0 = never. No overflow at 0xFFFFFFFF."""
    if expiry_s == SESSION_EXPIRY_NEVER_S:
        return 0
    return disconnected_at_us + expiry_s * 1_000_000


def remaining_s(expires_at: int, now_us: int) -> int:
    """Message Expiry Interval to send [MQTT-3.3.2-6]: -1 = none, 0 = expired, else seconds.

    Rounded up, so that a message within its last second is still delivered with 1.
    """
    if not expires_at:
        return -1
    left = expires_at - now_us
    if left <= 0:
        return 0
    return (left + 999_999) // 1_000_000
