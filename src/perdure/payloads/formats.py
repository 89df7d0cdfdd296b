"""Which format a message says itself that its payload has: by its content type, or by its topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from perdure.payloads import schemaless
from perdure.payloads.cbor import cbor
from perdure.payloads.schemaless import Decoder
from perdure.payloads.sparkplug import NAMESPACE, is_sparkplug, sparkplug

_TYPES: Final[Mapping[str, Decoder]] = {
    "application/json": schemaless.json,
    "application/cbor": cbor,
    "application/msgpack": schemaless.msgpack,
    "application/x-msgpack": schemaless.msgpack,
    "application/vnd.msgpack": schemaless.msgpack,
}
_SUFFIXES: Final[Mapping[str, Decoder]] = {"json": schemaless.json, "cbor": cbor}
"""Of structured syntaxes (RFC 6839, RFC 8949 section 9.5), as in ``application/senml+cbor``."""


def mime_type(content_type: str | None) -> str:
    """A content type without its parameters, in lower case."""
    return (content_type or "").partition(";")[0].strip().lower()


def decoder_of_type(content_type: str | None) -> Decoder | None:
    """The decoder that a content type asks for, or None if it says nothing."""
    kind = mime_type(content_type)
    return _TYPES.get(kind) or _SUFFIXES.get(kind.rpartition("+")[2] if "+" in kind else "")


def decoder_of_message(content_type: str, topic: str) -> Decoder:
    """The decoder for a payload: its content type decides, then its topic; else it is JSON."""
    found = decoder_of_type(content_type) if content_type else None
    if found is not None:
        return found
    return sparkplug if topic.startswith(NAMESPACE) and is_sparkplug(topic) else schemaless.json
