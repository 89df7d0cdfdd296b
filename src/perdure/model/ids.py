"""Names for the identifiers that rooms pass to each other.

They are aliases, not ``NewType``: on the hot path a call for each identifier costs more than
the mistakes it prevents (about 50 ns each, uncompiled).
"""

from __future__ import annotations

from typing import TypeAlias

ClientId: TypeAlias = str
TopicName: TypeAlias = str
TopicFilter: TypeAlias = str
PacketId: TypeAlias = int
"""1..65535; per direction, per session."""
SerialNumber: TypeAlias = int
"""64-bit order of a session's outbound messages; starts at 1, never wraps."""
Offset: TypeAlias = int
"""Position in a shard: strictly monotonic, ``max(last + 1, now in microseconds)``."""
Epoch: TypeAlias = int
"""Fencing number of a session's owner; +1 at each resume or takeover."""
ShardId: TypeAlias = int
GenerationId: TypeAlias = int
StreamId: TypeAlias = int
GroupKey: TypeAlias = str
"""``group/filter`` of a shared subscription (a group name holds no slash)."""
