"""Fixed bounds of the protocol and of one broker, each with its unit and reason.

The sizes of a module's own pages, buffers and retries stand in that module; what an operator may
change is in ``config``.
"""

from __future__ import annotations

from typing import Final

PACKET_ID_MAX: Final = 65_535
"""MQTT packet identifiers are 1..65535 (MQTT 5.0 section 2.2.1)."""

REMAINING_LENGTH_MAX: Final = 268_435_455
"""Largest remaining length, bytes: four bytes of seven bits (section 1.5.5)."""

CONNECT_HEAD_BYTES: Final = 4096
"""Bytes that a CONNECT may have beyond its limit: by default that is two fields of the largest
size, and both fit beside a client identifier and what else a CONNECT must have."""

UTF8_STRING_BYTES_MAX: Final = 65_535
"""Strings and binary data carry a two-byte length (section 1.5.4)."""

SESSION_EXPIRY_NEVER_S: Final = 0xFFFF_FFFF
"""Session Expiry Interval that means: does not expire (section 3.1.2.11.2)."""

OFFSET_MAX: Final = 2**63 - 1
"""Offsets are positive and fit a signed 64-bit integer, which Arrow and Spark use."""

WILL_BYTES_FREE: Final = 1024
"""Of each will, not counted against ``limits.will_bytes_max``: an honest one is smaller, and what a
connection takes besides is several times as much."""

BANS_MAX: Final = 100_000
"""Bans of one broker: their file is read and written as a whole, in about a second."""

BAN_REASON_MAX: Final = 256
"""Characters of a ban's reason: a line in a table."""

BAN_FILE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of the ban file; 100,000 plain bans have about 15 MB."""

CONTENT_BYTES_MAX: Final = 1024 * 1024
"""Bytes of a payload that content filters look into: decoding them takes some milliseconds of
the loop. A larger one has no fields for them. No setting: what a session is owed may not change."""

CONTENT_DEPTH_MAX: Final = 64
"""Objects and arrays in each other that content filters look into; a payload with more has no
fields. It is far from where Python's own bound depends on who calls the decoder."""

PAYLOAD_VALUES_MAX: Final = 50_000
"""Values, with keys, of a payload in CBOR, values in MessagePack or fields in Sparkplug B, and
opening brackets in JSON: a payload with more does not decode, or has no fields for filters. One
with as many holds the loop for about 25 ms, and for 90 on a build that is not compiled. No setting,
like CONTENT_BYTES_MAX."""

CONTENT_FILTER_ID_MAX: Final = 64
"""Characters of a stored content filter's id, which is a level of a topic filter."""

STORED_FILTERS_MAX: Final = 10_000
"""Stored content filters of one broker, all of which it holds in memory."""

STORED_FILTER_CHANGES_MAX: Final = 64
"""Changes of its stored filter that a shared group has not come past; at more, the oldest counts up
to the next one."""

FORWARDERS_MAX: Final = 256
"""Forwarders of one broker: each has a task, a connection and a page of the log in memory."""

FORWARDER_PREFIX: Final = "$forwarder/"
"""Client identifiers that begin so are those of the broker's own sessions: no client has one."""

assert PACKET_ID_MAX == 2**16 - 1
assert REMAINING_LENGTH_MAX == 128**4 - 1

INFLIGHT_MAX: Final = 1000
"""Default of ``session.inflight_max``."""
