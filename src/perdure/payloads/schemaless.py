"""Formats that say themselves what they hold, beside CBOR: JSON, MessagePack, and lines of CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from perdure.limits import CONTENT_DEPTH_MAX
from perdure.payloads.values import Undecodable, is_too_deep, plain

Decoder = Callable[[bytes], object]

_json = msgspec.json.Decoder()
_msgpack = msgspec.msgpack.Decoder()
LINE_FIELDS_MAX: Final = 200


def json(payload: bytes) -> object:
    """A JSON text.

    Raises:
        Undecodable: it is none, or nested too deep.
    """
    try:
        value = _json.decode(payload)
    except (ValueError, RecursionError) as error:
        raise Undecodable(str(error)) from None
    # How deep the library goes, and comes back, depends on who calls: what all can read is read.
    if opened(payload) > CONTENT_DEPTH_MAX and is_too_deep(value):
        raise Undecodable("nested too deep")
    return value


def opened(payload: bytes) -> int:
    """How many objects and arrays a JSON text begins, at most."""
    return payload.count(b"[") + payload.count(b"{")


def msgpack(payload: bytes) -> object:
    """One MessagePack value, and nothing behind it.

    Raises:
        Undecodable: it is none.
    """
    try:
        return plain(_msgpack.decode(payload))
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise Undecodable(str(error)) from None


def csv_decoder(names: Sequence[str], delimiter: str) -> Decoder:
    """A decoder of one line.

    Args:
        names: of its fields; those without one are ``field_1`` and so on.
        delimiter: between fields.
    """

    def line(payload: bytes) -> object:
        try:
            # As a file: a line ends with CR or LF and nothing else, and a quoted field keeps them.
            lines = io.StringIO(payload.decode().strip("\r\n"), newline="")
            [row] = csv.reader(lines, delimiter=delimiter)
        except (ValueError, csv.Error) as error:
            raise Undecodable(f"no single line of CSV: {error}") from None
        if len(row) > LINE_FIELDS_MAX:
            raise Undecodable("too many fields")
        if names and len(row) != len(names):
            raise Undecodable(f"{len(row)} fields, and {len(names)} are declared")
        found = names or [f"field_{number + 1}" for number in range(len(row))]
        return {name: scalar(text) for name, text in zip(found, row, strict=True)}

    return line


def scalar(text: str) -> object:
    """A field of text as the number or the truth that it is written as; empty = null."""
    text = text.strip()
    if not text:
        return None
    if text in {"true", "false"}:
        return text == "true"
    if "_" in text:
        return text  # a name; Python reads 1_000 as a number
    try:
        return int(text) if text.lstrip("+-").isdecimal() else float(text)
    except ValueError:
        return text
