"""How long tests wait for what has to come.

No test measures speed: these end what would never end. The machine may be slow and busy with
other things, so they are long, and nothing waits for them where all is well.
"""

from __future__ import annotations

from typing import Final

HANG_S: Final = 240.0
"""After so long without an answer a broker, a server or a program hangs."""

ROUND_S: Final = 60.0
"""A round of kills or faults takes no longer, on average."""


def rounds_s(rounds: int) -> float:
    """The limit of a test with so many rounds, for ``pytest.mark.timeout``."""
    return 5 * HANG_S + rounds * ROUND_S
