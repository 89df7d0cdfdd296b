"""Serial numbers and packet identifiers."""

from __future__ import annotations

import pytest

from perdure.limits import PACKET_ID_MAX
from perdure.session.seqno import PACKET_IDS, packet_id_of


@pytest.mark.trap(1)
@pytest.mark.parametrize(
    ("serial", "packet_id"),
    [(1, 1), (2, 2), (65_535, 65_535), (65_536, 1), (131_070, 65_535), (131_071, 1), (2**40, 256)],
)
def test_identifier_of_a_serial_number(serial: int, packet_id: int) -> None:
    """Trap 1: after 65535 comes 1, and nothing is skipped."""
    assert packet_id_of(serial) == packet_id


def test_all_identifiers_are_used_before_one_comes_again() -> None:
    assert PACKET_IDS == PACKET_ID_MAX
    first = 3 * PACKET_IDS - 7
    found = {packet_id_of(serial) for serial in range(first, first + PACKET_IDS)}
    assert found == set(range(1, PACKET_ID_MAX + 1))
