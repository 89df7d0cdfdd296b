"""What every section is, and the sizes that their defaults are written in."""

from __future__ import annotations

import msgspec

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
DAY_S = 86_400


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the configuration: frozen, every field has a default, no other key."""
