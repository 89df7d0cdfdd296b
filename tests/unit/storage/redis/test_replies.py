"""What an append answers."""

from __future__ import annotations

import pytest
from hiredis import ReplyError

from perdure.errors import UsageError
from perdure.storage.device_queue import Appended, EntryState, Trimmed
from perdure.storage.redis.replies import appended_of


def head(serial: int, packet_id: int, count: int) -> bytes:
    return serial.to_bytes(7, "big") + packet_id.to_bytes(2, "big") + count.to_bytes(2, "big")


def gone(serial: int, packet_id: int, state: int) -> bytes:
    return serial.to_bytes(7, "big") + packet_id.to_bytes(2, "big") + bytes([state])


def test_each_entry_has_its_result_and_the_trimmed_are_in_order() -> None:
    data = b"".join(
        (
            head(2**53 - 1, 65_535, 0),
            head(0, 0, 0),
            head(300, 7, 2),
            gone(260, 5, 1),
            gone(7, 4, 0),
            head(301, 8, 0),
        )
    )
    assert appended_of(data) == [
        Appended(2**53 - 1, 65_535),
        Appended(0, 0, repeated=True),
        Appended(
            300,
            7,
            trimmed=(Trimmed(7, 4, EntryState.PUBLISH), Trimmed(260, 5, EntryState.PUBREL)),
        ),
        Appended(301, 8),
    ]


def test_a_refusal_is_an_error() -> None:
    with pytest.raises(UsageError):
        appended_of(ReplyError("SERIAL 1 does not follow 2"))
