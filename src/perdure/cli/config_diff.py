"""What differs between two configurations, setting by setting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from perdure.config.load import Loaded, effective

BY_API: Final = "api"
"""Origin of a value that was changed while the broker ran; it stands over all others."""


class Shown(NamedTuple):
    """A setting of one of them.

    Attributes:
        value: secrets are redacted.
        origin: where it comes from.
        reload: ``live`` or ``restart``.
    """

    value: Any
    origin: str
    reload: str


def shown(loaded: Loaded) -> dict[str, Shown]:
    """The settings of a configuration, by path, with values as the API has them."""
    return {
        item.path: Shown(
            msgspec.json.decode(msgspec.json.encode(item.value)),
            str(item.origin),
            item.setting.reload,
        )
        for item in effective(loaded)
    }


def differences(before: Mapping[str, Shown], after: Mapping[str, Shown]) -> list[dict[str, Any]]:
    """A row for each setting that one of them has otherwise, or alone."""
    rows = []
    for setting in [*after, *(each for each in before if each not in after)]:
        old, new = before.get(setting), after.get(setting)
        if old is not None and new is not None and old.value == new.value:
            continue
        either = new or old
        assert either is not None
        rows.append(
            {
                "setting": setting,
                "before": None if old is None else old.value,
                "after": None if new is None else new.value,
                "takes": _takes(either.reload, old),
                "before_origin": None if old is None else old.origin,
                "after_origin": None if new is None else new.origin,
            }
        )
    return rows


def _takes(reload: str, old: Shown | None) -> str:
    if old is not None and old.origin == BY_API:
        return "config.patch with null"
    return "reload" if reload == "live" else "restart"
