"""When a will is due, and what is published."""

from __future__ import annotations

import pytest

from perdure.limits import SESSION_EXPIRY_NEVER_S
from perdure.model import Message, Will
from perdure.session.will import will_due_us, will_message


@pytest.mark.spec("MQTT-3.1.3-9")
@pytest.mark.trap(43)
@pytest.mark.parametrize(
    ("delay_s", "expiry_s", "due_us"),
    [
        (0, 100, 5),
        (10, 100, 10_000_005),
        (10, 3, 3_000_005),
        (10, 0, 5),
        (10, SESSION_EXPIRY_NEVER_S, 10_000_005),
        (SESSION_EXPIRY_NEVER_S, SESSION_EXPIRY_NEVER_S, 5 + SESSION_EXPIRY_NEVER_S * 1_000_000),
    ],
)
def test_due_at_the_delay_or_the_end_of_the_session(
    delay_s: int, expiry_s: int, due_us: int
) -> None:
    """Trap 43: a session of expiry 0 sends its will at once, whatever the delay."""
    will = Will("t", b"", delay_s=delay_s)
    assert will_due_us(will, disconnected_at_us=5, expiry_s=expiry_s) == due_us


def test_message_of_a_will() -> None:
    will = Will("t", b"x", 1, True, b"props", expiry_s=2)
    assert will_message(will, "c", 7, 9) == Message(
        "t", b"x", 1, True, "c", b"props", expires_at_us=2_000_007, published_at_us=9
    )


@pytest.mark.parametrize(("expiry_s", "expires_at_us"), [(None, 0), (0, 7)])
def test_no_expiry_is_not_an_expiry_of_zero(expiry_s: int | None, expires_at_us: int) -> None:
    assert will_message(Will("t", b"", expiry_s=expiry_s), "c", 7, 7).expires_at_us == expires_at_us
