"""Text that may be written to a terminal, whoever it comes from.

Names of MQTT hold no control characters (``mqtt.primitives``), but reasons, properties, HTTP paths
and files do, and others deceive who reads: one character may turn the direction of a line.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """Text with control characters and lone surrogates written as escapes."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode()
        for char in text
    )


def printable_json(text: str) -> str:
    """One line of JSON that means the same, with such characters as JSON's own escapes."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _json_escape(char) for char in text)


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
