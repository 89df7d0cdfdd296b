"""What bridges say to each other, in user properties of MQTT 5.0."""

from __future__ import annotations

from typing import Final

VIA: Final = "perdure-via"
"""Of messages: a broker that they have left by a bridge, once for each. Of CONNECT: who asks."""
ORIGIN: Final = "perdure-origin"
"""Of CONNACK: who this broker is; sent if CONNECT has ``VIA``."""
