"""Brokers that the tool can start: a file for each, and a name below.

A new one is a module here with its ``Peer`` as ``PEER``, and its name in the list.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from perdure.bench.peer import Peer

_NAMES: Final = (
    "perdure",
    "mosquitto",
    "nats",
    "rabbitmq",
    "rumqttd",
    "mochi",
)

PEERS: Final[Mapping[str, Peer]] = {
    name: import_module(f"perdure.bench.peers.{name}").PEER for name in _NAMES
}
"""Brokers by the name that ``--start`` takes."""
