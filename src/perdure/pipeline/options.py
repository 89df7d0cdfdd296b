"""What a reader may ask of ``format("perdure")``, checked.

Knows no Spark: options are a mapping of texts. Invariant: what comes out can be used as it is, or
the option that cannot is named. A token is in no text that this module makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from perdure.config.load import load
from perdure.config.units import parse_duration, parse_time
from perdure.content import parse_filter
from perdure.errors import ConfigError, MqttError
from perdure.limits import OFFSET_MAX
from perdure.pipeline import kafka_options
from perdure.pipeline.address import WAIT_S, Remote
from perdure.pipeline.conditions import offset_before
from perdure.pipeline.lake.lake import Lake, checked_place, lake_of
from perdure.pipeline.lake.stores import scheme_of
from perdure.storage.rocksdb.bulk import FilterSets
from perdure.topic.names import validate_topic_filter

ROWS_PER_PARTITION: Final = 250_000
"""About a quarter of a second of one core; a partition costs Spark 20 to 30 ms."""

TOKEN_VARIABLE: Final = "PERDURE_TOKEN"  # noqa: S105 - the name of a variable
"""Environment variable with the token for ``url``."""

UNTIL_SLACK_US: Final = 60_000_000
"""How much later than it was published a message may have its place in the log: the time that a
loaded broker takes to write it, and small steps of its clock."""

_COMPRESSIONS: Final = ("none", "lz4", "zstd")
_LEVELS_MAX: Final = 65_536
_ONE_LOG: Final = "one log at a time; a union of two frames has both"

OPTIONS: Final[Mapping[str, str]] = {
    "path": "data directory of a broker, running or not",
    "url": "instead: http.bind of a running broker, http://host:18083; several with commas",
    "token": "for url; better a file, or the variable PERDURE_TOKEN",
    "tokenFile": "file with the token, read where the query is planned",
    "caFile": "for https: PEM file with the authority of the broker's certificate",
    "timeout": "how long a broker that is away is waited for, once a query runs (1m)",
    "compression": "of rows from url: none, lz4 or zstd",
    "topic": "topic filter; a JSON array for several; everything if not given",
    "from": "first moment of publishing: RFC 3339, or how long ago (2h); a number is an offset",
    "until": "last moment, likewise, inclusive; batch only",
    "where": "content filter: a JSON object of conditions on payload and user properties",
    "rowsPerPartition": "messages in a partition, about",
    "maxRowsPerTrigger": "most messages of a micro-batch; streams only",
    "pushdown": "off, or once: conditions narrow what is read, and each load is used by one query",
    "onDataLoss": "fail or skip, when messages were dropped before a stream read them",
    "whole": "off, or on: a batch is refused if the log has lost anything after its begin",
    "catalog": "place of an archive: what retention has dropped from the log is read from it",
    "config": "configuration file whose section pipeline.tables says how the archive is reached",
    "missing": "fail or skip, when the archive has not all that was dropped",
    **kafka_options.OPTIONS,
}
"""Every option, with what it means."""


class ReadOptions(msgspec.Struct, frozen=True):
    """Checked options.

    Attributes:
        path: data directory; empty if ``remote`` is given.
        filter_sets: a topic must match a filter of each set.
        after_offset: exclusive.
        until_offset: inclusive.
        rows_per_partition: about.
        rows_per_trigger: most messages of a micro-batch; 0 = all there are.
        skip_data_loss: go on where messages were dropped unread.
        pushdown: conditions may narrow what is read.
        remote: the broker to ask, or None.
        where: a content filter, or empty.
        catalog: place of an archive with what came before the log, or empty.
        lake: how that is reached, or None = as a directory.
        starts_latest: a new stream begins at the end of the log.
        partitions_min: least partitions of a batch, if it has as many messages.
        skip_missing: go without what the archive ought to have and has not.
        whole: refuse a range of which something was dropped.
        published_from, published_until: first and last ``published_at``, or None: what moments
            in ``from`` and ``until`` name. Whole numbers name offsets.
        asked_at_us: wall time at which ``published_until`` was given.
    """

    path: str
    filter_sets: FilterSets = ()
    after_offset: int = 0
    until_offset: int = OFFSET_MAX
    rows_per_partition: int = ROWS_PER_PARTITION
    rows_per_trigger: int = 0
    skip_data_loss: bool = False
    pushdown: bool = False
    remote: Remote | None = None
    where: str = ""
    catalog: str = ""
    skip_missing: bool = False
    whole: bool = False
    published_from: int | None = None
    published_until: int | None = None
    asked_at_us: int = 0
    lake: Lake | None = None
    starts_latest: bool = False
    partitions_min: int = 1

    @property
    def place(self) -> str:
        """Where the log is, for messages."""
        return self.path if self.remote is None else self.remote.url

    @property
    def is_of_several(self) -> bool:
        """Whether several nodes may be asked, each with a copy of the log that may be behind."""
        return self.remote is not None and bool(self.remote.others)

    def at(self, remote: Remote) -> ReadOptions:
        """These options for another place."""
        return msgspec.structs.replace(self, remote=remote)

    def reach(self, newest_offset: int) -> int:
        """The highest offset to look at, of a log that ends at ``newest_offset``.

        Offsets that are ahead of the clock say nothing of when a message was published: then all
        the rest is looked at.
        """
        if self.published_until is not None and newest_offset > self.asked_at_us + UNTIL_SLACK_US:
            return OFFSET_MAX
        return self.until_offset

    def between(self, after_offset: int, until_offset: int) -> ReadOptions:
        """These options for a range of offsets, whatever moments they named."""
        return msgspec.structs.replace(
            self,
            after_offset=after_offset,
            until_offset=until_offset,
            published_from=None,
            published_until=None,
        )


def parse_options(
    options: Mapping[str, str], now_us: int, *, environ: Mapping[str, str] | None = None
) -> ReadOptions:
    """Checked options.

    Args:
        options: names in any case.
        now_us: wall time, for ``from`` and ``until``.
        environ: environment variables, for the token.

    Raises:
        ConfigError: an option is unknown or has a value that cannot be used.
    """
    given = _known(options)
    remote = _remote(given, environ or {})
    lake = _lake(given, environ or {})
    since, until = given.get("from"), given.get("until")
    after, first, begin = 0, None, 0
    if since:
        begin = _moment("from", since, now_us)
        after = max(0, begin - 1)
        if not _is_offset(since):
            after, first = offset_before(begin), max(1, begin)
    end, last = OFFSET_MAX, None
    if until:
        end = _moment("until", until, now_us)
        if since:
            _check_order(options, (since, begin), (until, end))
        if not _is_offset(until):
            end, last = end + UNTIL_SLACK_US, end
    return ReadOptions(
        path="" if remote else given["path"],
        filter_sets=_filter_sets(given.get("topic", "")),
        after_offset=after,
        until_offset=min(end, OFFSET_MAX),
        rows_per_partition=_count(given, "rowsPerPartition", ROWS_PER_PARTITION),
        rows_per_trigger=_count(given, "maxRowsPerTrigger", 0),
        skip_data_loss=_is_second(given, "onDataLoss", ("fail", "skip")),
        pushdown=_is_second(given, "pushdown", ("off", "once")),
        remote=remote,
        where=check_where(given.get("where", "")),
        catalog=lake.place if lake else "",
        lake=lake,
        starts_latest="startingOffsets" in given,
        partitions_min=_count(given, "minPartitions", 1),
        skip_missing=_is_second(given, "missing", ("fail", "skip")),
        whole=_is_second(given, "whole", ("off", "on")),
        published_from=first,
        published_until=last,
        asked_at_us=now_us if last is not None else 0,
    )


def _known(options: Mapping[str, str]) -> dict[str, str]:
    """Options by the names that they have here."""
    names = {name.lower(): name for name in OPTIONS}
    given: dict[str, str] = {}
    for name, value in options.items():
        known = names.get(name.lower())
        if name.lower() == "paths":
            # What Spark makes of a list.
            raise ConfigError("load() takes one data directory", path="path", hint=_ONE_LOG)
        if known is None:
            kafka_options.refuse(name)
            close = get_close_matches(name.lower(), names, n=1)
            hint = f"did you mean {names[close[0]]}?" if close else ""
            raise ConfigError(
                f"unknown option {name!r}",
                path=name,
                hint=hint or f"the options are {', '.join(OPTIONS)}",
            )
        given[known] = value
    return kafka_options.in_our_words(given)


def _remote(given: Mapping[str, str], environ: Mapping[str, str]) -> Remote | None:
    """The broker that ``url`` names; None = the log is in a directory."""
    path, url = given.get("path", ""), given.get("url", "")
    if path.startswith(("http://", "https://")):
        # To load() an address is what one tries first.
        path, url = "", url or path
    if path and url:
        raise ConfigError("both path and url were given", path="url", hint=_ONE_LOG)
    if not url:
        if not path:
            raise ConfigError(
                "no data directory was named",
                path="path",
                hint='.load("perdure-data") names one; option url, "http://host:18083", a broker',
            )
        for name in ("token", "tokenFile", "caFile", "timeout", "compression"):
            if name in given:
                raise ConfigError(f"{name} is for url, and path was given", path=name)
        return None
    first, *others = [_url(each.strip()) for each in url.split(",")]
    return Remote(
        url=first,
        others=tuple(others),
        token=_token(given, environ),
        ca_file=given.get("caFile", ""),
        wait_s=_wait_s(given),
        compression=_compression(given),
    )


def _url(url: str) -> str:
    try:
        parts = urlsplit(url)
        fits = bool(parts.hostname) and parts.scheme in {"http", "https"} and parts.port != 0
    except ValueError:
        fits = False
    if not fits or parts.query or parts.fragment or parts.username is not None:
        raise ConfigError(
            "url: expected http://host:port or https://host:port", path="url", hint="see http.bind"
        )
    return url.rstrip("/")


def _token(given: Mapping[str, str], environ: Mapping[str, str]) -> str:
    token = given.get("token", "")
    name = given.get("tokenFile", "")
    if name and token:
        raise ConfigError("both token and tokenFile were given", path="tokenFile")
    if name:
        try:
            lines = Path(name).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not a text"
            raise ConfigError(f"tokenFile {name}: {reason}", path="tokenFile") from error
        # As the broker's own file: the first line that is no comment.
        lines = [line.strip() for line in lines if not line.startswith("#")]
        token = next((line for line in lines if line), "")
        if not token:
            raise ConfigError(f"tokenFile {name} holds no token", path="tokenFile")
    token = token or environ.get(TOKEN_VARIABLE, "").strip()
    if not token.isascii() or not token.isprintable():
        raise ConfigError("the token has characters that no token has", path="token")
    return token


def _wait_s(given: Mapping[str, str]) -> float:
    text = given.get("timeout")
    if text is None:
        return WAIT_S
    try:
        return parse_duration(f"{text}s" if text.isdecimal() else text, "us") / 1_000_000
    except ValueError as error:
        raise ConfigError(f"timeout: {error}", path="timeout") from error


def _compression(given: Mapping[str, str]) -> str:
    word = given.get("compression", _COMPRESSIONS[0])
    if word not in _COMPRESSIONS:
        raise ConfigError(
            f"compression: expected {', '.join(_COMPRESSIONS)}, got {word!r}", path="compression"
        )
    return "" if word == _COMPRESSIONS[0] else word


def _lake(given: Mapping[str, str], environ: Mapping[str, str]) -> Lake | None:
    """The archive that ``catalog`` or ``config`` names; None = the log alone."""
    place, config = given.get("catalog", ""), given.get("config", "")
    if not place and not config:
        return None
    tables = load(Path(config) if config else None, environ=environ).config.pipeline.tables
    if not config and not scheme_of(place):
        # A directory of its own says all there is to know.
        return Lake(checked_place(place))
    return lake_of(tables, place=place)


def _filter_sets(text: str) -> FilterSets:
    if not text:
        return ()
    filters = [text]
    if text.startswith("["):
        try:
            filters = msgspec.json.decode(text, type=list[str])
        except ValueError as error:
            raise ConfigError(
                f"topic: expected a filter or a JSON array of filters: {error}", path="topic"
            ) from error
    for topic_filter in filters:
        try:
            validate_topic_filter(topic_filter, levels_max=_LEVELS_MAX)
        except MqttError as error:
            raise ConfigError(f"topic {topic_filter!r}: {error.message}", path="topic") from error
        if topic_filter.startswith("$share/"):
            raise ConfigError(f"topic {topic_filter!r}: a shared filter has no rows", path="topic")
    return (tuple(filters),)


def check_where(text: str) -> str:
    """A content filter that was parsed once, so that its errors are told where a read begins.

    Raises:
        ConfigError: it is none.
    """
    if text:
        try:
            parse_filter(text)
        except ValueError as error:
            raise ConfigError(f"where: {error}", path="where") from error
    return text


def _is_offset(text: str) -> bool:
    """Whether a bound is a place in the log, and no moment."""
    return text.strip().isdecimal()


def _check_order(
    options: Mapping[str, str], since: tuple[str, int], until: tuple[str, int]
) -> None:
    """Make sure that a read does not begin behind its end, where both are offsets or both moments:
    an offset may be ahead of the clock.

    Raises:
        ConfigError: it does. Just behind it is where one that has nothing to read may begin.
    """
    is_offset = _is_offset(since[0])
    if is_offset == _is_offset(until[0]) and since[1] > until[1] + is_offset:
        begin = kafka_options.said_as(kafka_options.BEGINS, options)
        end = kafka_options.said_as(kafka_options.ENDS, options)
        raise ConfigError(
            f"{begin} {since[0]} is behind {end} {until[0]}: there is nothing between",
            path=begin,
            hint="both are included" if is_offset else "an age such as 2h counts back from now",
        )


def _moment(name: str, text: str, now_us: int) -> int:
    try:
        return parse_time(text, now_us)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}", path=name) from error


def _count(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name)
    return default if text is None else kafka_options.whole_number(name, text)


def _is_second(given: Mapping[str, str], name: str, words: tuple[str, str]) -> bool:
    """Whether an option has the second of its two words; the first is the default."""
    text = given.get(name, words[0])
    if text not in words:
        raise ConfigError(f"{name}: expected {' or '.join(words)}, got {text!r}", path=name)
    return text == words[1]
