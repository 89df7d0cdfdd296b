"""What may be compiled: mypyc drops the arguments of a record's class, and with them the format."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPILED = [
    line
    for line in (ROOT / "compiled.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
RECORD = re.compile(r"^class \w+\(.*\bStruct\b", re.MULTILINE)


def test_the_list_is_sorted_and_names_each_once() -> None:
    assert sorted(set(COMPILED)) == COMPILED


@pytest.mark.parametrize("module", COMPILED)
def test_a_compiled_module_is_there_and_defines_no_record(module: str) -> None:
    source = (ROOT / "src" / module).read_text(encoding="utf-8")
    assert not RECORD.search(source)


def test_the_pattern_sees_a_record() -> None:
    source = (ROOT / "src/perdure/storage/rocksdb/generations.py").read_text(encoding="utf-8")
    assert RECORD.search(source)


def test_a_module_that_is_written_to_be_compiled_is_on_the_list() -> None:
    """A forgotten one runs, only slower: nothing else tells."""
    written = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src").rglob("*.py")
        if "from mypy_extensions import" in path.read_text(encoding="utf-8")
    }
    assert written
    assert written <= set(COMPILED)
