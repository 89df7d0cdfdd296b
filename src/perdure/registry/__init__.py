"""The registry of subscriptions and devices on Redis, in the keys of nexxus-redis.

Workers of any transport ask it which devices want a change; Perdure's clients are among them
(``device|mqtt``). ``Registry`` is where to begin; ``channel`` draws the keys.
"""

from perdure.registry.channel import Channel, DeviceTransport, Keys, filter_id_of, patterns
from perdure.registry.device import Device
from perdure.registry.reading import Subscribed
from perdure.registry.registry import Registry
from perdure.registry.upkeep import Swept, Upkeep
from perdure.registry.wanted import Wanted

__all__ = [
    "Channel",
    "Device",
    "DeviceTransport",
    "Keys",
    "Registry",
    "Subscribed",
    "Swept",
    "Upkeep",
    "Wanted",
    "filter_id_of",
    "patterns",
]
