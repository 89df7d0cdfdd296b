"""What a line of the table of metrics says.

How an attribute of ``Metrics`` is named and
exported follows from its line:

========  ============================================  ==================================
layout    attribute                                     label value
========  ============================================  ==================================
scalar    ``name: int``                                 none
fields    ``name_<value>: int`` for each value          the end of the attribute's name
list      ``name: list[int]``                           ``values[index]``, or the index
dict      ``name: dict[tuple[str, ...], int]``          the key
========  ============================================  ==================================

A histogram is ``name: Histogram`` (scalar), or one for each value (fields) or key (dict).
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, final

import msgspec

PREFIX: Final = "perdure_"

PACKET_TYPES = (
    "reserved",
    "connect",
    "connack",
    "publish",
    "puback",
    "pubrec",
    "pubrel",
    "pubcomp",
    "subscribe",
    "suback",
    "unsubscribe",
    "unsuback",
    "pingreq",
    "pingresp",
    "disconnect",
    "auth",
)
"""By MQTT control packet type number (MQTT 5.0 section 2.1.2)."""

QOS_LEVELS = ("0", "1", "2")

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Layout: TypeAlias = Literal["scalar", "fields", "list", "dict"]


@final
class MetricInfo(msgspec.Struct, frozen=True):
    """One line of the table.

    Attributes:
        name: exported as ``perdure_<name>``, counters with ``_total`` after it.
        kind: counter, gauge or histogram.
        help: one sentence.
        labels: label names.
        values: closed set of values of the one label (``fields`` and ``list``).
        layout: where the numbers are (see the module's docstring).
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    layout: Layout = "scalar"


def counter(name: str, text: str) -> MetricInfo:
    """A counter without labels."""
    return MetricInfo(name, "counter", text)


def gauge(name: str, text: str) -> MetricInfo:
    """A gauge without labels."""
    return MetricInfo(name, "gauge", text)


def histogram(name: str, text: str, label: str = "", *values: str) -> MetricInfo:
    """A histogram, or one for each value of a label."""
    if not label:
        return MetricInfo(name, "histogram", text)
    return MetricInfo(name, "histogram", text, (label,), values, "fields")
