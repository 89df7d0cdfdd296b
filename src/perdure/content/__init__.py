"""Content filters: which messages, by what is in them.

A filter is a JSON object (``content.syntax`` says what may be in it), parsed once into a
``ContentFilter``, which says of a payload and its user properties whether they fulfil it. Knows no
sessions and no bytes on disk.
"""

from perdure.content.evaluation import Evaluation, are_filtered, fulfils
from perdure.content.predicate import ContentFilter
from perdure.content.syntax import canonical, parse_filter

__all__ = [
    "ContentFilter",
    "Evaluation",
    "are_filtered",
    "canonical",
    "fulfils",
    "parse_filter",
]
