"""``-D packet property value``: MQTT 5.0 properties from the command line, by Mosquitto's names."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

import click

from perdure.mqtt.packets import Properties

_MESSAGE: Final = frozenset(
    {
        "payload-format-indicator",
        "message-expiry-interval",
        "content-type",
        "response-topic",
        "correlation-data",
        "user-property",
    }
)

PACKETS: Final = {
    "connect": frozenset(
        {
            "session-expiry-interval",
            "receive-maximum",
            "maximum-packet-size",
            "topic-alias-maximum",
            "request-response-information",
            "request-problem-information",
            "user-property",
        }
    ),
    "publish": _MESSAGE,
    "will": _MESSAGE | {"will-delay-interval"},
    "subscribe": frozenset({"subscription-identifier", "user-property"}),
    "unsubscribe": frozenset({"user-property"}),
    "disconnect": frozenset({"session-expiry-interval", "reason-string", "user-property"}),
}
"""Packets that the commands send, with the properties that each may carry."""

_INTEGERS: Final = {
    "payload-format-indicator": (0, 1),
    "request-response-information": (0, 1),
    "request-problem-information": (0, 1),
    "receive-maximum": (1, 65_535),
    "topic-alias-maximum": (0, 65_535),
    "maximum-packet-size": (1, 0xFFFF_FFFF),
    "message-expiry-interval": (0, 0xFFFF_FFFF),
    "session-expiry-interval": (0, 0xFFFF_FFFF),
    "will-delay-interval": (0, 0xFFFF_FFFF),
    "subscription-identifier": (1, 268_435_455),
}
"""Least and greatest value of the properties that are numbers."""


@dataclasses.dataclass(frozen=True, slots=True)
class PacketProperties:
    """The properties asked for, by packet."""

    connect: Properties = dataclasses.field(default_factory=Properties)
    publish: Properties = dataclasses.field(default_factory=Properties)
    will: Properties = dataclasses.field(default_factory=Properties)
    subscribe: Properties = dataclasses.field(default_factory=Properties)
    unsubscribe: Properties = dataclasses.field(default_factory=Properties)
    disconnect: Properties = dataclasses.field(default_factory=Properties)


def split_arguments(
    args: Sequence[str], valued: frozenset[str]
) -> tuple[list[str], list[list[str]]]:
    """Take each ``-D`` (``--property``) and its three or four words out of an argument list.

    A user property takes a key and a value, the others one value: more than an option of the
    parser can say.

    Args:
        args: the arguments of the command.
        valued: options that take the next argument, whatever it looks like.

    Returns:
        The other arguments, and the words of each property.

    Raises:
        click.UsageError: a property is incomplete.
    """
    rest: list[str] = []
    properties: list[list[str]] = []
    position = 0
    while position < len(args):
        arg = args[position]
        if arg not in ("-D", "--property"):
            taken = 2 if arg in valued else 1
            rest += args[position : position + taken]
            position += taken
            continue
        size = 4 if args[position + 2 : position + 3] == ["user-property"] else 3
        words = list(args[position + 1 : position + 1 + size])
        if len(words) < size:
            raise click.UsageError(f"{arg} takes a packet, a property and its value")
        properties.append(words)
        position += 1 + size
    return rest, properties


def parse_properties(properties: Sequence[Sequence[str]]) -> PacketProperties:
    """Properties of each packet from their words.

    Raises:
        click.UsageError: no such packet or property, or a value that it cannot have.
    """
    found: dict[str, dict[str, Any]] = {}
    for packet, name, *values in properties:
        allowed = PACKETS.get(packet)
        if allowed is None:
            raise click.UsageError(f"-D: no packet {packet!r}; take one of {', '.join(PACKETS)}")
        if name not in allowed:
            raise click.UsageError(
                f"-D: {packet} has no property {name!r}; take one of {', '.join(sorted(allowed))}"
            )
        fields = found.setdefault(packet, {})
        if name == "user-property":
            fields["user_properties"] = (*fields.get("user_properties", ()), tuple(values))
        elif name == "subscription-identifier":
            fields["subscription_identifiers"] = (_integer(name, values[0]),)
        else:
            fields[name.replace("-", "_")] = _value(name, values[0])
    return PacketProperties(**{packet: Properties(**fields) for packet, fields in found.items()})


def _value(name: str, text: str) -> int | str | bytes:
    if name in _INTEGERS:
        return _integer(name, text)
    return text.encode() if name == "correlation-data" else text


def _integer(name: str, text: str) -> int:
    least, greatest = _INTEGERS[name]
    if not (text.isascii() and text.isdigit() and least <= int(text) <= greatest):
        raise click.UsageError(f"-D: {name} is a number from {least} to {greatest}, not {text!r}")
    return int(text)
