"""Writes docs/traps.md: the defects of other brokers, and our test of each.

Titles and sources stand in ``tools/traps.toml``, the tests carry ``pytest.mark.trap(number)``.
Run it with ``python -m tools.traps``; tidy fails when the page is out of date, and
``python -m tools.traps --missing`` lists what has no test yet.
"""

from __future__ import annotations

import sys
import tomllib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from tools.marks import ROOT, find_marks

PAGE = Path("docs/traps.md")
TABLE = Path("tools/traps.toml")

_HEAD = """# Traps

Every line is a defect that some broker shipped. Each is a test here that fails on a broker with
that defect. Generated from the tests' `trap` marks by `make docs`; do not edit.
"""
_NO_TEST = "no test yet"


@dataclass(frozen=True)
class Trap:
    """One line of the table.

    Attributes:
        number: what tests name.
        group: heading it stands under.
        title: the rule that the defect broke, in one sentence.
        source: broker and issue, pull request or commit.
        outside: why the one-machine profile cannot have it; empty = it can.
    """

    number: int
    group: str
    title: str
    source: str
    outside: str = ""


def load(root: Path = ROOT) -> list[Trap]:
    """The table, in order of number."""
    with (root / TABLE).open("rb") as file:
        table = tomllib.load(file)
    traps = [
        Trap(group=group["name"], **entry) for group in table["group"] for entry in group["trap"]
    ]
    assert [trap.number for trap in traps] == list(range(1, len(traps) + 1))
    return traps


def named_by(root: Path = ROOT) -> dict[int, list[str]]:
    """The tests that name each trap."""
    tests: dict[int, list[str]] = defaultdict(list)
    for marked in find_marks("trap", root):
        name = f"`{marked.path}` {marked.test.rpartition('.')[2]}".strip()
        if name not in tests[int(marked.value)]:
            tests[int(marked.value)].append(name)
    return tests


def missing(root: Path = ROOT) -> list[Trap]:
    """Traps of this profile that no test names."""
    tests = named_by(root)
    return [trap for trap in load(root) if not trap.outside and trap.number not in tests]


def render(root: Path = ROOT) -> str:
    """The page's text.

    Raises:
        ValueError: a test names a trap that the table does not have.
    """
    traps, tests = load(root), named_by(root)
    unknown = sorted(set(tests) - {trap.number for trap in traps})
    if unknown:
        raise ValueError(f"tests name traps that are not in {TABLE}: {unknown}")
    ours = [trap for trap in traps if not trap.outside]
    tested = sum(trap.number in tests for trap in ours)
    parts = [_HEAD, f"\n{tested} of {len(ours)} have their test.\n"]
    group = ""
    for trap in ours:
        if trap.group != group:
            group = trap.group
            parts.append(f"\n## {group}\n\n| | what must not happen | seen in | tests |\n")
            parts.append("|---|---|---|---|\n")
        cell = "<br>".join(tests.get(trap.number, [_NO_TEST]))
        parts.append(f"| {trap.number} | {trap.title} | {trap.source} | {cell} |\n")
    parts.append("\n## Outside the embedded profile\n\n")
    parts.append("These need parts that one machine with an embedded log does not have.\n\n")
    parts.append("| | what must not happen | seen in | why not here |\n|---|---|---|---|\n")
    parts.extend(
        f"| {trap.number} | {trap.title} | {trap.source} | {trap.outside} |\n"
        for trap in traps
        if trap.outside
    )
    return "".join(parts)


def main(arguments: list[str]) -> int:
    """Write the page, or list the traps without a test."""
    if arguments == ["--missing"]:
        for trap in missing():
            sys.stdout.write(f"{trap.number:3} {trap.title}\n")
        return 0
    path = ROOT / PAGE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
