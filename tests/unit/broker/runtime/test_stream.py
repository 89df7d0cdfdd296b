"""The peer's description is a value."""

from __future__ import annotations

import dataclasses

import pytest

from perdure.broker.runtime.stream import PeerInfo


def test_peer_info_is_a_frozen_value() -> None:
    peer = PeerInfo("tcp:1883", "tcp", "127.0.0.1", 5, loopback=True)
    assert peer == PeerInfo("tcp:1883", "tcp", "127.0.0.1", 5, True, None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        peer.address = "10.0.0.1"  # type: ignore[misc]
    assert not hasattr(peer, "__dict__")
