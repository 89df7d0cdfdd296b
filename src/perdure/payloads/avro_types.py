"""Avro schemas made ready for their library, so that no bytes can do it harm.

Left alone, the library (fastavro) goes as deep as bytes say into a type that holds itself, on the
processor's stack, which ends the process; repeats an item that takes no bytes as often as they say;
and makes digits of a decimal of any size, in time that is the square of it.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, final

import msgspec

from perdure.payloads.values import BIGNUM_BYTES_MAX, Undecodable, float_of

_DECIMAL: Final = "perdure-decimal"


@final
class Prepared(NamedTuple):
    """A schema that can be read with.

    Attributes:
        schema: as the library has it.
        holds_itself: a type in it does: values are to be read where recursion is bounded.
    """

    schema: Any
    holds_itself: bool


def prepared(text: str) -> Prepared:
    """A schema from its text; needs fastavro.

    Raises:
        ValueError: it is none, or none that can be read with.
    """
    import fastavro
    from fastavro.read import LOGICAL_READERS

    try:
        schema = fastavro.parse_schema(msgspec.json.decode(text))
        walk = _Walk()
        walk.takes_bytes(schema)
    except Exception as error:  # noqa: BLE001 - whatever a text does to the library
        raise ValueError(f"no Avro schema: {error}") from None
    for kind in ("bytes", "fixed"):
        LOGICAL_READERS[f"{kind}-{_DECIMAL}"] = _decimal
    return Prepared(schema, walk.holds_itself)


@final
class _Walk:
    """Goes through a schema, whose names are full ones, once."""

    def __init__(self) -> None:
        self.holds_itself = False
        self._open: set[str] = set()
        self._known: dict[str, bool] = {}

    def takes_bytes(self, kind: Any) -> bool:
        """Whether each value of a type has a byte at least."""
        if isinstance(kind, str):
            if kind in self._open:
                self.holds_itself = True
            return self._known.get(kind, kind != "null")
        if isinstance(kind, list):
            for each in kind:
                self.takes_bytes(each)
            return True
        word = kind["type"]
        if not isinstance(word, str):
            return self.takes_bytes(word)
        if kind.get("logicalType") == "decimal":
            kind["logicalType"] = _DECIMAL
        if "fields" in kind:
            return self._record(kind)
        if word == "fixed":
            found = bool(kind["size"])
            self._known[kind["name"]] = found
            return found
        if word == "array" and not self.takes_bytes(kind["items"]):
            raise ValueError("an array of values that take no bytes")
        if word == "map":
            self.takes_bytes(kind["values"])
        return self._known.get(word, word != "null")

    def _record(self, kind: Any) -> bool:
        name = kind["name"]
        self._open.add(name)
        found = [self.takes_bytes(each["type"]) for each in kind["fields"]]
        self._open.discard(name)
        self._known[name] = any(found)
        return any(found)


def _decimal(data: bytes, schema: Any, *_: object) -> float:
    if len(data) > BIGNUM_BYTES_MAX:
        raise Undecodable("a number that is too large")
    return float_of(int.from_bytes(data, "big", signed=True), -schema.get("scale", 0))
