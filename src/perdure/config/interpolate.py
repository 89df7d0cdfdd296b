"""``${NAME}``, ``${NAME:default}``, ``${file:/path}`` in values; ``$${`` is a plain ``${``.

Defaults may hold further references. What was read from a file is marked secret, so that
``perdure config show`` does not print it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, final

import msgspec

DEPTH_MAX: Final = 8
"""References inside defaults of references; nobody needs more, and a loop ends."""

FILE_BYTES_MAX: Final = 65_536
"""A secret is short; a wrong path may name a device that never ends."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


@final
class Interpolated(msgspec.Struct, frozen=True):
    """The text after substitution.

    Attributes:
        text: the result.
        changed: at least one reference or escape was in it.
        secret: part of it came from a file.
    """

    text: str
    changed: bool
    secret: bool


def interpolate(text: str, environ: Mapping[str, str], *, depth: int = 0) -> Interpolated:
    """Replace the references in a text.

    Raises:
        ValueError: an unset variable without a default, an unreadable file, a bad reference.
    """
    if "${" not in text:
        return Interpolated(text, False, False)
    if depth > DEPTH_MAX:
        raise ValueError("references are nested too deeply")
    parts: list[str] = []
    secret = False
    at = 0
    while (start := text.find("${", at)) >= 0:
        if start > at and text[start - 1] == "$":
            parts.append(f"{text[at : start - 1]}${{")
            at = start + 2
            continue
        end = _closing_brace(text, start + 2)
        found = _resolve(text[start + 2 : end], environ, depth)
        parts += [text[at:start], found.text]
        secret = secret or found.secret
        at = end + 1
    parts.append(text[at:])
    return Interpolated("".join(parts), True, secret)


def _closing_brace(text: str, start: int) -> int:
    level = 1
    for index in range(start, len(text)):
        if text.startswith("${", index):
            level += 1
        elif text[index] == "}":
            level -= 1
            if level == 0:
                return index
    raise ValueError(f"no closing brace for ${{ in {text!r}")


def _resolve(reference: str, environ: Mapping[str, str], depth: int) -> Interpolated:
    name, colon, rest = reference.partition(":")
    if name == "file" and colon:
        return Interpolated(_read(rest), True, True)
    if not _NAME.fullmatch(name):
        raise ValueError(f"${{{reference}}} is not ${{NAME}}, ${{NAME:default}} or ${{file:/path}}")
    if name in environ:
        return Interpolated(environ[name], True, False)
    if not colon:
        raise ValueError(f"the environment variable {name} is not set and has no default")
    return interpolate(rest, environ, depth=depth + 1)


def _read(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise ValueError(f"{path} is larger than {FILE_BYTES_MAX} bytes")
        return data.decode().rstrip("\r\n")
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text") from error
