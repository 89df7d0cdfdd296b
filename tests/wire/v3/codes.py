"""Return codes of MQTT 3.1.1."""

from __future__ import annotations

from typing import Final

GRANTED: Final = 0
BAD_PROTOCOL: Final = 1
BAD_IDENTIFIER: Final = 2
BAD_CREDENTIALS: Final = 4
NOT_AUTHORIZED: Final = 5

FAILURE: Final = 0x80
"""The one SUBACK code for a refused filter (section 3.9.3)."""
