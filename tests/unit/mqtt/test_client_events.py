"""Events are values that cannot be changed."""

from __future__ import annotations

import dataclasses

import pytest

from perdure.mqtt.client_events import Ponged, Published
from perdure.mqtt.packets import EMPTY


def test_events_are_values() -> None:
    assert Published(1, 0, EMPTY) == Published(1, 0, EMPTY)
    assert Published(1, 0, EMPTY) != Published(2, 0, EMPTY)
    assert Ponged() == Ponged()
    with pytest.raises(dataclasses.FrozenInstanceError):
        Published(1, 0, EMPTY).handle = 2  # type: ignore[misc]
