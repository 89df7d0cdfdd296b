"""Units: durations, sizes, addresses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.config.units import (
    Address,
    format_duration,
    format_size,
    format_time,
    is_loopback,
    parse_address,
    parse_duration,
    parse_integer,
    parse_size,
    parse_time,
)


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("30s", "s", 30),
        ("30s", "ms", 30_000),
        ("1500ms", "us", 1_500_000),
        ("1.5s", "ms", 1500),
        ("7d", "s", 604_800),
        ("1w", "s", 604_800),
        ("1d12h", "s", 129_600),
        ("1h30m", "s", 5400),
        ("42", "ms", 42),
        (" 5m ", "s", 300),
        ("2000ms", "s", 2),
    ],
)
def test_durations(text: str, unit: str, value: int) -> None:
    assert parse_duration(text, unit) == value


@pytest.mark.parametrize("text", ["", "s", "5 s", "5x", "1.5", "-3s", "s5", "5s5", "٣s"])
def test_bad_durations(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        parse_duration(text, "s")


def test_a_duration_must_be_whole_in_its_unit() -> None:
    with pytest.raises(ValueError, match="not a whole number of s"):
        parse_duration("1500ms", "s")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("512", 512),
        ("64MiB", 64 * 2**20),
        ("64 mib", 64 * 2**20),
        ("4GB", 4 * 10**9),
        ("1.5KiB", 1536),
        ("10kB", 10_000),
        ("7B", 7),
        ("1TiB", 2**40),
    ],
)
def test_sizes(text: str, value: int) -> None:
    assert parse_size(text) == value


@pytest.mark.parametrize("text", ["", "MiB", "1XB", "1.0001B", "0.3B", "5 apples"])
def test_bad_sizes(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected a size|not a whole number"):
        parse_size(text)


@given(st.integers(min_value=0, max_value=2**50), st.sampled_from(["s", "ms", "us"]))
def test_durations_are_read_back(value: int, unit: str) -> None:
    assert parse_duration(format_duration(value, unit), unit) == value


@given(st.integers(min_value=0, max_value=2**60))
def test_sizes_are_read_back(value: int) -> None:
    assert parse_size(format_size(value)) == value


def test_integers() -> None:
    assert parse_integer(" -5 ") == -5
    for text in ("", "5.0", "0x10", "five", "1_000", "٣"):
        with pytest.raises(ValueError, match="whole number"):
            parse_integer(text)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:1883", Address("127.0.0.1", 1883)),
        ("localhost:0", Address("localhost", 0)),
        ("[::1]:8883", Address("::1", 8883)),
        ("[fe80::1%eth0]:1", Address("fe80::1%eth0", 1)),
        (":1883", Address("", 1883)),
        ("*:1883", Address("", 1883)),
        ("0.0.0.0", Address("0.0.0.0", 99)),
        ("[::]", Address("::", 99)),
        ("*", Address("", 99)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text, default_port=99) == address


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("::1", "brackets"),
        ("[::1", "expected"),
        ("[::1]x", "expected"),
        ("[1.2.3.4]:5", "IPv6"),
        ("host:", "port"),
        ("host:70000", "port"),
        ("host:-1", "port"),
        ("host:٣", "port"),
        ("1883", "host:port"),
        ("", "host:port"),
    ],
)
def test_bad_addresses(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_address(text, default_port=99)


def test_a_port_is_needed_without_a_default() -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_address("localhost")


def test_addresses_are_written_as_read() -> None:
    for text in ("127.0.0.1:1883", "[::1]:1883", ":1883"):
        assert str(parse_address(text)) == text


def test_loopback() -> None:
    assert all(is_loopback(host) for host in ("localhost", "127.0.0.1", "127.9.9.9", "::1"))
    assert not any(is_loopback(host) for host in ("", "0.0.0.0", "::", "10.0.0.1", "broker.lan"))


@pytest.mark.parametrize(
    ("text", "at_us"),
    [
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1970-01-01T01:00:01.000002+01:00", 1_000_002),
        ("1970-01-02", 86_400_000_000),
        ("123456", 123_456),
        ("2s", 8_000_000),
        ("1500ms", 8_500_000),
    ],
)
def test_times(text: str, at_us: int) -> None:
    assert parse_time(text, now_us=10_000_000) == at_us


@pytest.mark.parametrize("text", ["", "yesterday", "25:00", "-5", "11s", "1969-01-01", "9" * 20])
def test_bad_times(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected a time|out of range"):
        parse_time(text, now_us=10_000_000)


@given(st.integers(min_value=1, max_value=2**63 - 1))
def test_times_are_written_exactly(at_us: int) -> None:
    text = format_time(at_us)
    assert text is not None
    if not text.endswith("us"):
        assert parse_time(text, now_us=0) == at_us


def test_no_time_is_none() -> None:
    assert format_time(0) is None
    assert format_time(1_700_000_000_123_456) == "2023-11-14T22:13:20.123456Z"
