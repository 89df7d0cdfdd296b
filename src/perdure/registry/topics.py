"""Topics as channels: ``app/APP[/user/USER]/model/MODEL[/id/ID]``, level for part.

A topic filter is a channel if it is such a topic, or one with ``/#`` behind it: whoever subscribes
to a channel hears of all that is narrower, too. Any other wildcard has no channel.
"""

from __future__ import annotations

from perdure.errors import ConfigError
from perdure.registry.channel import Channel


def channel_of(topic_filter: str) -> Channel | None:
    """The channel of a topic or a topic filter; None = it is none."""
    name = topic_filter.removesuffix("/#")
    if not name.startswith("app/") or "+" in name or "#" in name or ":" in name:
        return None
    try:
        return Channel.parse(name.replace("/", ":"))
    except ConfigError:
        return None


def topic_of(channel: Channel) -> str:
    """The topic of a channel."""
    return channel.key.replace(":", "/")
