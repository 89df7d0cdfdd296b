"""Session and message expiry."""

from __future__ import annotations

import pytest

from perdure.limits import SESSION_EXPIRY_NEVER_S
from perdure.session.expiry import expires_at_us, remaining_s, session_expiry_s


@pytest.mark.parametrize(
    ("protocol", "clean_start", "requested_s", "granted_s"),
    [
        (4, True, None, 0),
        (4, False, None, 500),
        (5, False, None, 0),
        (5, True, 30, 30),
        (5, False, 0, 0),
        (5, False, 5000, 1000),
        (5, False, SESSION_EXPIRY_NEVER_S, 1000),
    ],
)
def test_interval_of_a_connect(
    protocol: int, clean_start: bool, requested_s: int | None, granted_s: int
) -> None:
    assert (
        session_expiry_s(
            protocol=protocol,
            clean_start=clean_start,
            requested_s=requested_s,
            persistent_s=500,
            max_s=1000,
        )
        == granted_s
    )


def test_the_bound_holds_for_311_too() -> None:
    granted = session_expiry_s(
        protocol=4, clean_start=False, requested_s=None, persistent_s=500, max_s=7
    )
    assert granted == 7


@pytest.mark.trap(47)
def test_end_of_a_session() -> None:
    """Trap 47: a very long expiry neither overflows nor means never, 0xFFFFFFFF does."""
    assert expires_at_us(3, 2) == 2_000_003
    assert expires_at_us(3, 0) == 3
    assert expires_at_us(3, SESSION_EXPIRY_NEVER_S) == 0
    assert expires_at_us(2**51, SESSION_EXPIRY_NEVER_S - 1) > 2**51 + 2**51


@pytest.mark.spec("MQTT-3.3.2-6")
@pytest.mark.parametrize(
    ("expires", "left_s"),
    [(0, -1), (100, 0), (99, 0), (101, 1), (1_000_100, 1), (1_000_101, 2)],
)
def test_what_is_left_of_a_message(expires: int, left_s: int) -> None:
    """Trap 23's second half: the interval that goes out counts down and never shows 0."""
    assert remaining_s(expires, 100) == left_s
