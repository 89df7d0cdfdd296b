"""A package counts as compiled only if every hot module is a library."""

from __future__ import annotations

from types import ModuleType

import pytest

from perdure.pure import build
from tools import compiled
from tools.compiled import LIST, modules, uncompiled


def test_modules_are_named_by_their_paths() -> None:
    assert list(modules(["# why", "", "perdure/mqtt/decode.py", "perdure/clock.py"])) == [
        "perdure.mqtt.decode",
        "perdure.clock",
    ]


def test_a_module_that_is_source_is_told() -> None:
    def load(name: str) -> ModuleType:
        found = ModuleType(name)
        found.__file__ = f"/x/{name}.cpython-311.so" if name != "b" else "/x/b.py"
        return found

    assert uncompiled(["a", "b", "c"], load) == ["b"]


def test_this_package_is_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    count = len(list(modules(LIST.read_text(encoding="utf-8").splitlines())))
    is_compiled = build() == "compiled"
    assert compiled.main() == (0 if is_compiled else 1)
    told = capsys.readouterr()
    assert told.out == f"compiled: {count if is_compiled else 0} of {count} modules\n"
    assert told.err.count("not compiled: ") == (0 if is_compiled else count)
