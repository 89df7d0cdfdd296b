"""What layouts and the server answer."""

from __future__ import annotations

from typing import Final

from perdure.storage.device_queue import Appended, EntryState, Trimmed
from perdure.storage.redis.commands import Reply, check

_APPENDED: Final = 11
_TRIMMED: Final = 10


def appended_of(reply: Reply) -> list[Appended]:
    """What became of the entries of an ``append``.

    Raises:
        StorageError, UsageError: it was refused.
    """
    data = check(reply)
    assert isinstance(data, bytes)
    results: list[Appended] = []
    at, end = 0, len(data)
    while at < end:
        serial = int.from_bytes(data[at : at + 7], "big")
        packet_id = data[at + 7] << 8 | data[at + 8]
        count = data[at + 9] << 8 | data[at + 10]
        at += _APPENDED
        if not count:
            results.append(Appended(serial, packet_id, repeated=not packet_id))
            continue
        trimmed = sorted(
            (_trimmed(data[at + n * _TRIMMED :][:_TRIMMED]) for n in range(count)),
            key=lambda gone: gone.serial,
        )
        at += count * _TRIMMED
        results.append(Appended(serial, packet_id, trimmed=tuple(trimmed)))
    return results


def number_of(reply: object) -> int:
    """A count."""
    assert isinstance(reply, int)
    return reply


def settings_of(reply: Reply) -> dict[str, str]:
    """What CONFIG GET has answered.

    Raises:
        StorageError, UsageError: it was refused.
    """
    found = check(reply)
    assert isinstance(found, list)
    texts = [part.decode() for part in found if isinstance(part, bytes)]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def info_of(reply: Reply) -> dict[str, str]:
    """The fields that INFO has answered.

    Raises:
        StorageError, UsageError: it was refused.
    """
    text = check(reply)
    assert isinstance(text, bytes)
    lines = (line.partition(":") for line in text.decode().splitlines() if ":" in line)
    return {name: value for name, _, value in lines}


def _trimmed(data: bytes) -> Trimmed:
    serial = int.from_bytes(data[:7], "big")
    return Trimmed(serial, data[7] << 8 | data[8], EntryState(data[9]))
