"""Reads a Dockerfile into stages and steps: as much of the language as ours uses, and no more.

What it does not know is an error, so that a Dockerfile cannot say more than is tested.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from typing import Final

METADATA: Final = frozenset({"LABEL", "EXPOSE", "VOLUME", "STOPSIGNAL"})
STEPS: Final = frozenset({"RUN", "COPY", "ENV", "ARG", "WORKDIR", "USER"})
PROGRAMS: Final = frozenset({"ENTRYPOINT", "CMD", "HEALTHCHECK"})
_VARIABLE: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


class DockerfileError(ValueError):
    """The file has something that is not understood here."""


@dataclass(frozen=True)
class Step:
    """An instruction that changes the root or what later ones run with."""

    word: str
    text: str


@dataclass
class Stage:
    """From one FROM to the next.

    Attributes:
        name: after AS; empty = none.
        base: the image, or the name of a stage.
        steps: in their order.
        programs: argument lists of ENTRYPOINT, CMD and HEALTHCHECK.
        metadata: text of LABEL, EXPOSE, VOLUME and STOPSIGNAL.
    """

    name: str
    base: str
    steps: list[Step] = field(default_factory=list)
    programs: dict[str, list[str]] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)


def expand(text: str, values: dict[str, str]) -> str:
    """Text with its variables replaced; an unknown one is empty, as there."""
    return _VARIABLE.sub(lambda found: values.get(found[1] or found[2], ""), text)


def pairs(text: str) -> dict[str, str]:
    """The ``NAME=value`` of an ENV."""
    found = {}
    for word in shlex.split(text):
        name, equals, value = word.partition("=")
        if not equals:
            raise DockerfileError(f"ENV {text}: write NAME=value")
        found[name] = value
    return found


def _program(word: str, text: str) -> list[str]:
    """The list of a program in its exec form: without a shell between it and its signals."""
    if word == "HEALTHCHECK":
        text = text[text.index("CMD") + 3 :].strip()
    if not text.startswith("["):
        raise DockerfileError(f"{word} {text}: write a list, so that signals reach the program")
    program = json.loads(text)
    assert all(isinstance(each, str) for each in program)
    return list(program)


def parse(text: str) -> tuple[dict[str, str], list[Stage]]:
    """(global arguments with their defaults, stages).

    Raises:
        DockerfileError: something is not understood.
    """
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        if word == "FROM":
            base, _, name = expand(rest, arguments).partition(" AS ")
            stages.append(Stage(name.strip(), base.strip()))
        elif not stages:
            if word != "ARG":
                raise DockerfileError(f"{word} before the first FROM")
            name, _, default = rest.partition("=")
            arguments[name] = default
        elif word in PROGRAMS:
            stages[-1].programs[word] = _program(word, rest)
        elif word in METADATA:
            stages[-1].metadata[word] = rest
        elif word in STEPS:
            stages[-1].steps.append(Step(word, rest))
        else:
            raise DockerfileError(f"{word} is not known here")
    return arguments, stages
