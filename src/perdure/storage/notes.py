"""What is written in the same write as a batch, for whoever applies batches to a store.

A store knows nothing of it but its keys: how far a shared log was read, who has submitted what.
"""

from __future__ import annotations

from typing import Final, TypeAlias

Note: TypeAlias = tuple[bytes, bytes | None]
"""Key and value; None = the key is forgotten."""

LOG_IDENTITY: Final = b"i"
"""Of a store that is a node's: what tells its log from every other, the same on all nodes."""
