"""What is written in the same write as a batch, for whoever applies batches to a store.

A store knows nothing of it but its keys: how far a shared log was read, who has submitted what.
"""

from __future__ import annotations

from typing import Final, TypeAlias

Note: TypeAlias = tuple[bytes, bytes | None]
"""Key and value; None = the key is forgotten."""

LOG_IDENTITY: Final = b"i"
"""Of a store that is a node's: what tells its log from every other, the same on all nodes."""

RESTORED: Final = b"r"
"""Of a store that a backup was restored into, until it is a node's that has read on to the end of
its log: eight bytes that tell what was restored. Its own business, not the log's."""
