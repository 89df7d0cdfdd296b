"""SASLprep (RFC 4013): one spelling for each password, on every keyboard. Pure.

Holds the profile only; what is done about a string that it refuses is up to the caller.
"""

from __future__ import annotations

import stringprep
import unicodedata
from typing import Final

_PROHIBITED: Final = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def saslprep(text: str) -> str:
    """Map, normalise and check a user name or password.

    Code points that Unicode 3.2 had not assigned are let pass, as for a query string: a password
    may hold an emoji.

    Raises:
        ValueError: the text holds a prohibited code point, or mixes directions (RFC 3454
            section 6).
    """
    if text.isascii() and text.isprintable():
        return text
    mapped = "".join(
        " " if stringprep.in_table_c12(char) else char
        for char in text
        if not stringprep.in_table_b1(char)
    )
    prepared = unicodedata.normalize("NFKC", mapped)
    for char in prepared:
        if any(prohibited(char) for prohibited in _PROHIBITED):
            raise ValueError(f"code point U+{ord(char):04X} is not allowed here")
    if any(stringprep.in_table_d1(char) for char in prepared):
        ends_right = stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1])
        if not ends_right or any(stringprep.in_table_d2(char) for char in prepared):
            raise ValueError("right-to-left and left-to-right characters are mixed")
    return prepared
