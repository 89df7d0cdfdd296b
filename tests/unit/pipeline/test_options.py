"""Options are checked, and what is wrong is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.errors import ConfigError
from perdure.limits import OFFSET_MAX
from perdure.pipeline.address import Remote
from perdure.pipeline.options import OPTIONS, UNTIL_SLACK_US, ReadOptions, parse_options

NOW = 1_700_000_000_000_000


def test_defaults_read_everything() -> None:
    assert parse_options({"path": "d"}, NOW) == ReadOptions("d", (), 0, OFFSET_MAX)


def test_all_options_in_any_case() -> None:
    options = parse_options(
        {
            "PATH": "d",
            "topic": "a/+",
            "From": "2h",
            "until": "2023-11-14T22:13:20Z",
            "rowsperpartition": "5",
            "maxRowsPerTrigger": "7",
            "ondataloss": "skip",
            "pushdown": "once",
        },
        NOW,
    )
    assert options == ReadOptions(
        "d",
        (("a/+",),),
        NOW - 7_200_000_000 - 1,
        NOW + UNTIL_SLACK_US,
        5,
        7,
        True,
        True,
        published_from=NOW - 7_200_000_000,
        published_until=NOW,
        asked_at_us=NOW,
    )


def test_the_catalog_is_a_directory() -> None:
    assert parse_options({"path": "d", "catalog": "file:///a%20b"}, NOW).catalog == "/a b"
    assert parse_options({"path": "d", "catalog": "to"}, NOW).catalog == str(Path("to").resolve())


def test_numbers_are_offsets() -> None:
    options = parse_options({"path": "d", "from": "7", "until": "9"}, NOW)
    assert options == ReadOptions("d", (), 6, 9)


def test_several_filters() -> None:
    assert parse_options({"path": "d", "topic": '["a/#", "b"]'}, NOW).filter_sets == (("a/#", "b"),)


@pytest.mark.parametrize(
    ("options", "path", "text"),
    [
        ({}, "path", "no data directory"),
        ({"paths": '["a","b"]'}, "path", "takes one data directory"),
        ({"path": "d", "topics": "a"}, "topics", "unknown option 'topics'"),
        ({"path": "d", "topic": "a/#/b"}, "topic", "last level"),
        ({"path": "d", "topic": "$share/g/a"}, "topic", "shared"),
        ({"path": "d", "topic": "[1]"}, "topic", "JSON array"),
        ({"path": "d", "from": "soon"}, "from", "expected a time"),
        ({"path": "d", "until": "-1"}, "until", "until"),
        ({"path": "d", "rowsPerPartition": "0"}, "rowsPerPartition", "whole number"),
        ({"path": "d", "maxRowsPerTrigger": "many"}, "maxRowsPerTrigger", "whole number"),
        ({"path": "d", "onDataLoss": "ignore"}, "onDataLoss", "fail or skip"),
        ({"path": "d", "pushdown": "true"}, "pushdown", "off or once"),
        ({"path": "d", "whole": "yes"}, "whole", "off or on"),
        (
            {"path": "d", "catalog": "s3://b/a"},
            "pipeline.tables.catalog_type",
            "an object store need a catalog",
        ),
        ({"path": "d", "catalog": "ftp://b/a"}, "pipeline.tables.place", "expected a directory"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], path: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        parse_options(options, NOW)
    assert caught.value.path == path


def test_a_close_name_is_suggested() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options({"path": "d", "topik": "a"}, NOW)
    assert caught.value.hint == "did you mean topic?"
    with pytest.raises(ConfigError) as caught:
        parse_options({"path": "d", "zzz": "a"}, NOW)
    assert "rowsPerPartition" in caught.value.hint


TOKEN = "0123456789abcdef0123456789abcdef"


def test_where() -> None:
    assert parse_options({"path": "d", "where": '{"a":1}'}, NOW).where == '{"a":1}'
    with pytest.raises(ConfigError, match=r"^where: a: no operator") as caught:
        parse_options({"path": "d", "where": '{"a":{}}'}, NOW)
    assert caught.value.path == "where"


def remote_of(**options: str) -> Remote:
    found = parse_options(options, NOW).remote
    assert found is not None
    return found


def test_a_broker_is_named_by_its_url(tmp_path: Path) -> None:
    found = parse_options({"url": "http://host:18083/", "token": TOKEN}, NOW)
    assert (found.path, found.place) == ("", "http://host:18083")
    assert found.remote == Remote("http://host:18083", token=TOKEN)
    assert TOKEN not in repr(found)
    # What one tries first.
    assert remote_of(path="https://host/perdure").url == "https://host/perdure"
    assert remote_of(url="http://h", timeout="90").wait_s == 90
    assert remote_of(url="http://h", timeout="1m30s").wait_s == 90
    assert remote_of(url="http://h", timeout="0").wait_s == 0
    assert remote_of(url="http://h", compression="none").compression == ""
    assert remote_of(url="http://h", compression="zstd").compression == "zstd"


def test_where_a_token_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"# comment\n\n {TOKEN} \nanother\n")
    assert remote_of(url="http://h", tokenFile=str(file)).token == TOKEN
    variable = parse_options({"url": "http://h"}, NOW, environ={"PERDURE_TOKEN": f"{TOKEN}\n"})
    assert variable.remote is not None
    assert variable.remote.token == TOKEN
    given = parse_options({"url": "http://h", "token": "t"}, NOW, environ={"PERDURE_TOKEN": TOKEN})
    assert given.remote is not None
    assert given.remote.token == "t"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"path": "d", "url": "http://h"}, "both path and url"),
        ({"path": "d", "token": TOKEN}, "token is for url"),
        ({"path": "d", "timeout": "1s"}, "timeout is for url"),
        ({"url": "host:18083"}, "expected http://host:port"),
        ({"url": "ftp://host"}, "expected http://host:port"),
        ({"url": "http://"}, "expected http://host:port"),
        ({"url": "http://h:99999"}, "expected http://host:port"),
        ({"url": "http://user:word@h"}, "expected http://host:port"),
        ({"url": "http://h?x=1"}, "expected http://host:port"),
        ({"url": "http://h", "token": "a\nb"}, "characters that no token has"),
        ({"url": "http://h", "token": "a", "tokenFile": "b"}, "both token and tokenFile"),
        ({"url": "http://h", "tokenFile": "nowhere"}, "tokenFile nowhere: No such file"),
        ({"url": "http://h", "timeout": "soon"}, "timeout: expected a duration"),
        ({"url": "http://h", "compression": "rar"}, "none, lz4, zstd"),
    ],
)
def test_a_broker_that_cannot_be_named_so(options: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        parse_options(options, NOW)
    assert "word" not in caught.value.message


def test_an_empty_token_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("# nothing\n")
    with pytest.raises(ConfigError, match="holds no token"):
        parse_options({"url": "http://h", "tokenFile": str(file)}, NOW)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not a text"):
        parse_options({"url": "http://h", "tokenFile": str(file)}, NOW)


def test_options_of_kafkas_source_mean_ours() -> None:
    theirs = parse_options(
        {
            "path": "d",
            "startingTimestamp": str(NOW // 1_000),
            "maxOffsetsPerTrigger": "7",
            "failOnDataLoss": "false",
            "minPartitions": "4",
        },
        NOW,
    )
    assert theirs == ReadOptions(
        "d",
        after_offset=NOW - 1,
        rows_per_trigger=7,
        skip_data_loss=True,
        published_from=NOW,
        partitions_min=4,
    )
    plain = {"path": "d", "startingOffsets": "earliest", "endingOffsets": "latest"}
    assert parse_options(plain, NOW) == ReadOptions("d")
    numbers = {"path": "d", "startingoffsets": "7", "ENDINGOFFSETS": "9"}
    assert parse_options(numbers, NOW) == ReadOptions("d", (), 6, 9, whole=True)
    assert parse_options({"path": "d", "startingOffsets": " Latest"}, NOW).starts_latest


@pytest.mark.parametrize("loss", [{"failOnDataLoss": "FALSE"}, {"onDataLoss": "skip"}])
def test_an_offset_to_begin_at_is_there_unless_loss_is_skipped(loss: dict[str, str]) -> None:
    given = {"path": "d", "startingOffsets": "7"}
    assert parse_options(given | {"failOnDataLoss": "true"}, NOW).whole
    assert not parse_options(given | loss, NOW).whole
    assert not parse_options(given | {"whole": "off"}, NOW).whole
    # Names of ours look for what there is.
    assert not parse_options({"path": "d", "from": "7"}, NOW).whole


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"startingOffsets": "9", "endingOffsets": "7"}, "startingOffsets 9 is behind endingOff"),
        ({"STARTINGOFFSETS": "9", "until": "7"}, "startingOffsets 9 is behind until 7"),
        ({"from": "1h", "until": "2h"}, "from 1h is behind until 2h: there is nothing between"),
        ({"startingTimestamp": "5", "endingTimestamp": "4"}, "startingTimestamp 1970.*endingTime"),
    ],
)
def test_a_read_that_begins_behind_its_end_is_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        parse_options({"path": "d", **given}, NOW)
    assert caught.value.path in {name for name in OPTIONS if name.lower() in str(given).lower()}
    assert caught.value.hint


def test_a_read_may_begin_just_behind_its_end_or_where_no_clock_says() -> None:
    """Nothing to do is no mistake, and an offset may be ahead of the clock."""
    empty = parse_options({"path": "d", "from": "8", "until": "7"}, NOW)
    assert (empty.after_offset, empty.until_offset) == (7, 7)
    parse_options({"path": "d", "from": "1h", "until": "1h"}, NOW)
    parse_options({"path": "d", "from": str(NOW + 1), "until": "2h"}, NOW)


@pytest.mark.parametrize("first_ms", [0, 1, NOW // 1_000, 253_402_300_799_999])
def test_a_millisecond_has_all_its_microseconds(first_ms: int) -> None:
    given = {"startingTimestamp": str(first_ms), "endingTimestamp": str(first_ms)}
    options = parse_options({"path": "d", **given}, NOW)
    # The first moment of a log is 1: 0 is no time.
    assert options.published_from == max(first_ms * 1_000, 1)
    assert options.published_until == first_ms * 1_000 + 999


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"startingOffsets": '{"t":{"0":1}}'}, "expected earliest, latest or an offset"),
        ({"startingOffsets": "5", "from": "2h"}, "both from and startingOffsets"),
        (
            {"startingOffsets": "5", "startingTimestamp": "6"},
            "both startingOffsets and startingTimestamp",
        ),
        ({"endingOffsets": "5", "endingTimestamp": "6"}, "both endingOffsets and endingTimestamp"),
        ({"startingOffsets": "9" * 20}, "startingOffsets: expected earliest, latest or an offset"),
        ({"startingOffsets": "latest", "from": "2h"}, "both a begin and latest"),
        ({"startingTimestamp": "2026-01-01"}, "milliseconds since 1970"),
        ({"startingTimestamp": "253402300800000"}, "startingTimestamp: expected milliseconds"),
        ({"failOnDataLoss": "no"}, "true or false"),
        ({"failOnDataLoss": "true", "onDataLoss": "skip"}, "both onDataLoss"),
        ({"minPartitions": "0"}, "whole number"),
        # Python reads no number of so many digits, and says so in words of its own.
        *(
            ({name: "9" * 5000}, f"{name}: expected .* got '9{{40}}'")
            for name in (
                *("startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp"),
                *("maxOffsetsPerTrigger", "maxRowsPerTrigger", "minPartitions", "rowsPerPartition"),
            )
        ),
        ({"maxOffsetsPerTrigger": str(2**63)}, "whole number"),
        ({"subscribe": "a"}, "Kafka source"),
        ({"startingOffsetsByTimestampStrategy": "latest"}, "Kafka source"),
        ({"fetchOffset.numRetries": "3"}, "Kafka source"),
        ({"kafka.security.protocol": "SSL"}, "Kafka source"),
        ({"kafka.bootstrap.servers": "h:9092"}, "Kafka source"),
    ],
)
def test_kafkas_options_that_do_not_fit_are_named(given: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        parse_options({"path": "d", **given}, NOW)
    if "Kafka source" in text:
        assert caught.value.hint


def test_the_end_of_a_read_is_not_asked_for_by_a_word_it_refuses() -> None:
    with pytest.raises(ConfigError, match=r"expected latest or an offset, got 'earliest'"):
        parse_options({"path": "d", "endingOffsets": "earliest"}, NOW)
    with pytest.raises(ConfigError, match=r"expected earliest, latest or an offset, got 'newest'"):
        parse_options({"path": "d", "startingOffsets": "newest"}, NOW)
