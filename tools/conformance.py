"""Writes docs/reference/conformance.md from the tests' `pytest.mark.spec` marks.

Run it with ``python -m tools.conformance``; tidy fails when the page is out of date.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

from tools.marks import ROOT, find_marks

PAGE = Path("docs/reference/conformance.md")

_HEAD = """# Conformance

Normative statements of the MQTT specification and the tests that hold Perdure to them. Generated
from the tests' `spec` marks by `make docs`; do not edit.

Identifiers are those of MQTT 5.0 (appendix B) and, with the suffix `@3.1.1`, of MQTT 3.1.1.
"""
_STATEMENT = re.compile(r"^MQTT-(\d+)\.(\d+)\.(\d+)-(\d+)(@3\.1\.1)?$")


def sort_key(statement: str) -> tuple[int, ...]:
    """Order of the specification: chapter, section, clause, number; 5.0 before 3.1.1.

    Raises:
        ValueError: the identifier is not one of the specification's form.
    """
    match = _STATEMENT.match(statement)
    if match is None:
        raise ValueError(f"not a statement identifier: {statement!r}")
    return (*(int(number) for number in match.groups()[:4]), 1 if match.group(5) else 0)


def render(root: Path = ROOT) -> str:
    """The page's text."""
    tests: dict[str, list[str]] = defaultdict(list)
    for marked in find_marks("spec", root):
        name = f"`{marked.path}` {marked.test.rpartition('.')[2]}".strip()
        if name not in tests[str(marked.value)]:
            tests[str(marked.value)].append(name)
    count = f"{len(tests)} statements, {sum(map(len, tests.values()))} tests.\n"
    parts = [_HEAD, count]
    section = ""
    for statement in sorted(tests, key=sort_key):
        current = statement.removeprefix("MQTT-").rpartition("-")[0]
        if current != section:
            section = current
            parts.append(f"\n## Section {section}\n\n| statement | tests |\n|---|---|\n")
        parts.append(f"| {statement} | {'<br>'.join(tests[statement])} |\n")
    return "".join([parts[0], "\n", *parts[1:]])


def main() -> int:
    """Write the page."""
    path = ROOT / PAGE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
