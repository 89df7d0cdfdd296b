"""Options by the names that Spark's Kafka source has for them.

They are put into our own words before anything looks at them, so that there is one meaning of each.
What has no counterpart is refused with what to use here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from perdure.errors import ConfigError
from perdure.limits import OFFSET_MAX

OPTIONS: Final[Mapping[str, str]] = {
    "startingOffsets": "earliest, latest (streams only), or an offset: the first one that is read",
    "endingOffsets": "latest, or an offset: the last one that is read; batch only",
    "startingTimestamp": "milliseconds since 1970: the first moment of publishing",
    "endingTimestamp": "likewise, the last one, with all of that millisecond; batch only",
    "maxOffsetsPerTrigger": "as maxRowsPerTrigger",
    "minPartitions": "a batch, and a micro-batch, has as many partitions at least",
    "failOnDataLoss": "true (as onDataLoss fail) or false (as skip)",
}
"""Every name, with what it means here."""

LATEST: Final = "latest"
EARLIEST: Final = "earliest"
_INSTEAD: Final[Mapping[str, str]] = {
    "kafka.bootstrap.servers": "load() with a data directory, or option url: http.bind of a broker",
    "subscribe": "option topic: an MQTT topic filter, or a JSON array of several",
    "subscribepattern": "option topic: an MQTT topic filter, or a JSON array of several",
    "assign": "option topic: an MQTT topic filter, or a JSON array of several",
    "includeheaders": "the column user_properties, which is always there",
    "startingoffsetsbytimestamp": "option startingTimestamp",
    "endingoffsetsbytimestamp": "option endingTimestamp",
    "startingoffsetsbytimestampstrategy": "nothing: behind the last message a stream waits for the "
    "next one, and a batch has no rows",
    "groupidprefix": "nothing: positions are in the checkpoint",
    "kafka.group.id": "nothing: positions are in the checkpoint",
    "minoffsetspertrigger": "a longer trigger(processingTime=..)",
    "maxtriggerdelay": "a longer trigger(processingTime=..)",
    "maxrecordsperpartition": "option rowsPerPartition",
    "kafkaconsumer.polltimeoutms": "option timeout, for url",
    "fetchoffset.numretries": "option timeout, for url",
    "fetchoffset.retryintervalms": "option timeout, for url",
}
_OF_THE_CLIENT: Final = "kafka."
"""Begins what Kafka's own consumer is told."""

BEGINS: Final = ("from", "startingOffsets", "startingTimestamp")
ENDS: Final = ("until", "endingOffsets", "endingTimestamp")
"""Names by which the bounds of a read are given."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS_MAX: Final = 100
_MILLISECONDS_MAX: Final = 253_402_300_799_999
"""The last one of the year 9999, beyond which there is no text for a moment."""


def refuse(name: str) -> None:
    """Say what takes the place of an option of Kafka's source that there is not here.

    Raises:
        ConfigError: it is such an option.
    """
    instead = _INSTEAD.get(name.lower())
    if instead is None and name.lower().startswith(_OF_THE_CLIENT):
        instead = "option url, with token or tokenFile, and caFile for https"
    if instead is not None:
        raise ConfigError(f"{name} is of Spark's Kafka source", path=name, hint=f"here: {instead}")


def in_our_words(given: Mapping[str, str]) -> dict[str, str]:
    """Options without the names of Kafka's source.

    ``startingOffsets: latest`` and ``minPartitions`` stay, for there is no other word for them. An
    offset to begin at must be there still, unless data loss is skipped: ``whole``.

    Args:
        given: names as they are here.

    Raises:
        ConfigError: a value cannot be used, or two options say the same.
    """
    found = {name: value for name, value in given.items() if name not in OPTIONS}
    said_before: dict[str, str] = {}

    def put(name: str, value: str, said: str) -> None:
        if name in found:
            raise ConfigError(
                f"both {said_before.get(name, name)} and {said} were given",
                path=said,
                hint="they say the same: leave one",
            )
        found[name] = value
        said_before[name] = said

    starting = _word(given.get("startingOffsets", EARLIEST))
    if starting == LATEST:
        put("startingOffsets", LATEST, "startingOffsets")
        if "from" in found or "startingTimestamp" in given:
            raise ConfigError(
                "both a begin and latest were given",
                path="startingOffsets",
                hint="leave out one: latest begins with what comes after the start",
            )
    elif starting != EARLIEST:
        put("from", _offset("startingOffsets", starting), "startingOffsets")
    ending = _word(given.get("endingOffsets", LATEST))
    if ending != LATEST:
        put("until", _offset("endingOffsets", ending), "endingOffsets")
    if "startingTimestamp" in given:
        begin = _milliseconds("startingTimestamp", given["startingTimestamp"])
        put("from", _moment(begin * 1_000), "startingTimestamp")
    if "endingTimestamp" in given:
        end = _milliseconds("endingTimestamp", given["endingTimestamp"])
        put("until", _moment(end * 1_000 + 999), "endingTimestamp")
    if "maxOffsetsPerTrigger" in given:
        most = whole_number("maxOffsetsPerTrigger", given["maxOffsetsPerTrigger"])
        put("maxRowsPerTrigger", str(most), "maxOffsetsPerTrigger")
    if "failOnDataLoss" in given:
        words = {"true": "fail", "false": "skip"}
        word = words.get(given["failOnDataLoss"].lower())
        if word is None:
            raise ConfigError("failOnDataLoss: expected true or false", path="failOnDataLoss")
        put("onDataLoss", word, "failOnDataLoss")
    if starting.isdecimal() and found.get("onDataLoss") != "skip":
        found.setdefault("whole", "on")
    if "minPartitions" in given:
        found["minPartitions"] = given["minPartitions"]
    return found


def whole_number(name: str, text: str) -> int:
    """A count, from 1.

    Raises:
        ConfigError: it is none, or no offset would be as large.
    """
    if _is_number(text) and 1 <= int(text) <= OFFSET_MAX:
        return int(text)
    raise ConfigError(f"{name}: expected a whole number from 1, got {text[:40]!r}", path=name)


def said_as(names: Sequence[str], given: Mapping[str, str]) -> str:
    """Which of some names an option was given by, in any case; the first if by none."""
    lower = {name.lower() for name in given}
    return next((name for name in names if name.lower() in lower), names[0])


def _word(text: str) -> str:
    """A word as Kafka's source takes it."""
    return text.strip().lower()


def _offset(name: str, text: str) -> str:
    """An offset."""
    if _is_number(text) and int(text) <= OFFSET_MAX:
        return text
    words = "earliest, latest" if name == "startingOffsets" else LATEST
    raise ConfigError(
        f"{name}: expected {words} or an offset, got {text[:40]!r}",
        path=name,
        hint="the column offset; the log is one, without topics and partitions as in Kafka's JSON",
    )


def _milliseconds(name: str, text: str) -> int:
    if not _is_number(text) or int(text) > _MILLISECONDS_MAX:
        raise ConfigError(f"{name}: expected milliseconds since 1970, got {text[:40]!r}", path=name)
    return int(text)


def _is_number(text: str) -> bool:
    """Whether a text is a whole number that Python takes: of more digits it reads none."""
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX


def _moment(at_us: int) -> str:
    """Microseconds since 1970 as our options write a moment: a number there is a position."""
    return (_EPOCH + timedelta(microseconds=at_us)).isoformat()
