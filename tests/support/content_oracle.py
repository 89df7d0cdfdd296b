"""An evaluator of content filters of its own: written from the guide, sharing nothing with ours.

It asks Python's ``json`` and walks the filter again for each message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

NOWHERE: Any = object()
NUMBER = re.compile(r"\A-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?\Z")


def document_of(payload: bytes) -> Any:
    """The JSON value of a payload, or ``NOWHERE``."""

    def refuse(word: str) -> Any:
        raise ValueError(word)

    try:
        return json.loads(payload.decode(), parse_constant=refuse)
    except ValueError:
        return NOWHERE


def fulfils(
    wanted: dict[str, Any], document: Any, properties: Sequence[tuple[str, str]] = ()
) -> bool:
    """Whether a document with some user properties fulfils a filter."""
    for name, value in wanted.items():
        if name == "$and":
            good = all(fulfils(each, document, properties) for each in value)
        elif name == "$or":
            good = any(fulfils(each, document, properties) for each in value)
        elif name == "$not":
            good = not fulfils(value, document, properties)
        else:
            good = _condition(value, _found(name, document, properties))
        if not good:
            return False
    return True


def _found(name: str, document: Any, properties: Sequence[tuple[str, str]]) -> list[Any]:
    """Every value that a name stands for; none = it is nowhere."""
    if name.startswith("$property."):
        texts = [text for key, text in properties if f"$property.{key}" == name]
        return texts + [json.loads(text) for text in texts if NUMBER.match(text)]
    here = document
    for step in [] if name == "$payload" else name.split("."):
        if type(here) is dict and step in here:
            here = here[step]
        elif type(here) is list and re.fullmatch("[0-9]{1,9}", step) and int(step) < len(here):
            here = here[int(step)]
        else:
            return []
    return [] if here is NOWHERE else [here]


def _condition(value: Any, found: list[Any]) -> bool:
    if type(value) is not dict:
        return any(_alike(each, value) for each in found)
    return all(_operator(name, operand, found) for name, operand in value.items())


def _operator(name: str, operand: Any, found: list[Any]) -> bool:
    match name:
        case "$eq":
            return any(_alike(each, operand) for each in found)
        case "$ne":
            return not _operator("$eq", operand, found)
        case "$in":
            return any(_alike(each, choice) for each in found for choice in operand)
        case "$nin":
            return not _operator("$in", operand, found)
        case "$exists":
            return bool(found) is operand
        case "$not":
            return not _condition(operand, found)
    ranks = {"$gt": (1,), "$gte": (0, 1), "$lt": (-1,), "$lte": (-1, 0)}[name]
    return any(_rank(each, operand) in ranks for each in found)


def _kind(value: Any) -> str:
    return "number" if type(value) in (int, float) else type(value).__name__


def _alike(one: Any, other: Any) -> bool:
    if _kind(one) != _kind(other):
        return False
    if type(one) is list:
        return len(one) == len(other) and all(_alike(a, b) for a, b in zip(one, other, strict=True))
    if type(one) is dict:
        return set(one) == set(other) and all(_alike(one[key], other[key]) for key in one)
    return bool(one == other)


def _rank(one: Any, other: Any) -> int | None:
    if _kind(one) != _kind(other) or _kind(one) not in ("number", "str"):
        return None
    if one != one:  # not a number: neither greater nor less than any
        return None
    return int(one > other) - int(one < other)
