r"""How ``perdure sub`` prints a message: payload, verbose, ``-F`` formats and JSON.

A format has Mosquitto's three kinds of sequences: ``%`` parameters of the message, with the flags
``0`` and ``-``, a width and (for text) a precision; ``@`` for strftime; ``\`` for characters.
A format is compiled once into pieces; a piece turns a message and its time into bytes.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import click

from perdure.mqtt.encode import properties_from_forward
from perdure.mqtt.packets import Properties, Publish

Printer: TypeAlias = Callable[[Publish, int], bytes]
"""Turns a message and the time of its arrival (nanoseconds since the epoch) into bytes."""

_ESCAPES: Final = {
    "\\": b"\\",
    "0": b"\0",
    "a": b"\a",
    "e": b"\x1b",
    "n": b"\n",
    "r": b"\r",
    "t": b"\t",
    "v": b"\v",
}
_SEQUENCE: Final = re.compile(r"([-0]*)([0-9]*)(?:\.([0-9]+))?(.)", re.DOTALL)
_TEXT: Final = frozenset("CIRt")
_NUMBERS: Final = frozenset("AEFSlm")
_BYTES: Final = frozenset("Xpx")
_PLAIN: Final = frozenset("DJPUjqr")


class BadPayload(Exception):
    """The payload is not what the format needs."""


def payload_only(publish: Publish, _at_ns: int) -> bytes:
    """The payload as it is."""
    return publish.payload


def verbose(publish: Publish, _at_ns: int) -> bytes:
    """Topic and payload."""
    return publish.topic.encode() + b" " + publish.payload


def compile_format(text: str) -> Printer:
    """Compile a ``-F`` format.

    Raises:
        click.UsageError: a sequence is unknown or incomplete.
    """
    pieces: list[Printer] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char == "%":
            match = _SEQUENCE.match(text, position)
            if match is None:
                raise click.UsageError("-F: % at the end")
            pieces.append(_parameter(match))
            position = match.end()
        elif char in "@\\":
            if position == len(text):
                raise click.UsageError(f"-F: {char} at the end")
            pieces.append(_time(text[position]) if char == "@" else _escape(text[position]))
            position += 1
        else:
            end = position
            while end < len(text) and text[end] not in "%@\\":
                end += 1
            pieces.append(_literal(text[position - 1 : end].encode()))
            position = end

    def render(publish: Publish, at_ns: int) -> bytes:
        return b"".join([piece(publish, at_ns) for piece in pieces])

    return render


def _literal(data: bytes) -> Printer:
    return lambda _publish, _at_ns: data


def _escape(char: str) -> Printer:
    if char not in _ESCAPES:
        raise click.UsageError(f"-F: unknown sequence \\{char}")
    return _literal(_ESCAPES[char])


def _time(char: str) -> Printer:
    if char == "@":
        return _literal(b"@")
    if char == "N":
        return lambda _publish, at_ns: b"%09d" % (at_ns % 1_000_000_000)
    return lambda _publish, at_ns: _local(at_ns).strftime(f"%{char}").encode()


def _parameter(match: re.Match[str]) -> Printer:
    flags, width_text, precision_text, name = match.groups()
    if name == "%":
        return _literal(b"%")
    if name in _PLAIN:
        return _PLAIN_VALUES[name]
    if name not in _TEXT | _NUMBERS | _BYTES:
        raise click.UsageError(f"-F: unknown sequence %{name}")
    width = int(width_text or 0)
    left = "-" in flags
    zeros = "0" in flags and not left and name not in _TEXT
    precision = int(precision_text) if precision_text and name in _TEXT else None

    def padded(publish: Publish, at_ns: int) -> bytes:
        if name in _BYTES:
            value = _payload(name, publish)
        else:
            # Cut and counted in characters, not in bytes of UTF-8.
            text = _field(name, publish, at_ns)[:precision]
            missing = width - len(text)
            pad = ("0" if zeros else " ") * missing
            return (text + pad if left else pad + text).encode()
        if left:
            return value.ljust(width)
        return value.rjust(width, b"0" if zeros else b" ")

    return padded


def _payload(name: str, publish: Publish) -> bytes:
    if name == "p":
        return publish.payload
    digits = publish.payload.hex()
    return (digits if name == "x" else digits.upper()).encode()


def _field(name: str, publish: Publish, at_ns: int) -> str:
    """The value of a parameter that may be padded; empty when the message has none."""
    if name == "t":
        return publish.topic
    if name == "l":
        return str(len(publish.payload))
    if name == "m":
        return str(publish.packet_id)
    if name == "I":
        return _local(at_ns).strftime("%Y-%m-%dT%H:%M:%S%z")
    if name == "E":
        return "" if publish.expiry_s < 0 else str(publish.expiry_s)
    if name == "A":
        return str(publish.topic_alias) if publish.topic_alias else ""
    if name == "S":
        return " ".join(map(str, publish.identifiers))
    properties = properties_from_forward(publish.forward)
    value: object
    if name == "C":
        value = properties.content_type
    elif name == "R":
        value = properties.response_topic
    else:
        value = properties.payload_format_indicator
    return "" if value is None else str(value)


def _user_properties(publish: Publish, _at_ns: int) -> bytes:
    pairs = properties_from_forward(publish.forward).user_properties
    return " ".join(f"{key}:{value}" for key, value in pairs).encode()


def _correlation_data(publish: Publish, _at_ns: int) -> bytes:
    return properties_from_forward(publish.forward).correlation_data or b""


def _unix_time(_publish: Publish, at_ns: int) -> bytes:
    return b"%d.%09d" % divmod(at_ns, 1_000_000_000)


def _local(at_ns: int) -> dt.datetime:
    at = dt.datetime.fromtimestamp(at_ns // 1_000_000_000, dt.UTC)
    return at.replace(microsecond=at_ns // 1000 % 1_000_000).astimezone()


def _mosquitto_json(publish: Publish, at_ns: int, *, parse_payload: bool) -> bytes:
    """The object that mosquitto_sub prints, field by field."""
    at = _local(at_ns)
    record: dict[str, Any] = {
        "tst": f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond:06d}{at:%z}",
        "topic": publish.topic,
        "qos": publish.qos,
        "retain": int(publish.retain),
        "payloadlen": len(publish.payload),
    }
    if publish.qos:
        record["mid"] = publish.packet_id
    properties = _mosquitto_properties(publish)
    if properties:
        record["properties"] = properties
    if parse_payload:
        try:
            record["payload"] = json.loads(publish.payload)
        except (ValueError, RecursionError):
            raise BadPayload("the payload is not valid JSON") from None
    else:
        record["payload"] = publish.payload.decode("utf-8", "replace")
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()


def _mosquitto_properties(publish: Publish) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for name, value in properties_from_forward(publish.forward).present().items():
        key = name.replace("_", "-")
        if name == "user_properties":
            assert isinstance(value, tuple)
            # An object, as Mosquitto prints it; of a repeated key the last value stays.
            properties["user-properties"] = dict(value)
        elif isinstance(value, bytes):
            properties[key] = _text_or_hex(value)
        else:
            properties[key] = value
    if publish.expiry_s >= 0:
        properties["message-expiry-interval"] = publish.expiry_s
    if publish.identifiers:
        properties["subscription-identifier"] = publish.identifiers[0]
    return properties


def _text_or_hex(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.hex()


_PLAIN_VALUES: Final[dict[str, Printer]] = {
    "D": _correlation_data,
    "P": _user_properties,
    "U": _unix_time,
    "q": lambda publish, _: b"%d" % publish.qos,
    "r": lambda publish, _: b"%d" % publish.retain,
    "j": lambda publish, at_ns: _mosquitto_json(publish, at_ns, parse_payload=False),
    "J": lambda publish, at_ns: _mosquitto_json(publish, at_ns, parse_payload=True),
}


def message_record(publish: Publish, at_ns: int) -> dict[str, Any]:
    """A message as ``--json`` prints it: the payload in base64, and as text if it is UTF-8."""
    at = dt.datetime.fromtimestamp(at_ns // 1_000_000_000, dt.UTC)
    record: dict[str, Any] = {
        "received_at": f"{at:%Y-%m-%dT%H:%M:%S}.{at_ns // 1000 % 1_000_000:06d}Z",
        "topic": publish.topic,
        "qos": publish.qos,
        "retain": publish.retain,
        "dup": publish.dup,
        "packet_id": publish.packet_id or None,
        "payload": base64.b64encode(publish.payload).decode(),
    }
    try:
        record["payload_text"] = publish.payload.decode()
    except UnicodeDecodeError:
        record["payload_text"] = None
    record["properties"] = _record_properties(publish)
    return record


def _record_properties(publish: Publish) -> dict[str, Any]:
    properties: Properties = properties_from_forward(publish.forward)
    found = properties.present()
    if properties.correlation_data is not None:
        found["correlation_data"] = base64.b64encode(properties.correlation_data).decode()
    if publish.expiry_s >= 0:
        found["message_expiry_interval"] = publish.expiry_s
    if publish.identifiers:
        found["subscription_identifiers"] = list(publish.identifiers)
    return found
