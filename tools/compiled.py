"""Checks that a package is the compiled one: every module of ``compiled.txt`` is a library.

``python -m tools.compiled`` prints how many there are, or which are not. A suite that is meant for
the compiled modules would pass on their source too, and say nothing.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType

from tools.marks import ROOT

LIST = ROOT / "compiled.txt"


def modules(lines: Iterable[str]) -> Iterator[str]:
    """Names of the modules that a list of paths names."""
    for line in lines:
        if line and not line.startswith("#"):
            yield line.removesuffix(".py").replace("/", ".")


def uncompiled(
    names: Iterable[str], load: Callable[[str], ModuleType] = importlib.import_module
) -> list[str]:
    """Those that are not libraries."""
    return [name for name in names if not str(load(name).__file__).endswith(".so")]


def main() -> int:
    """Check the package that is imported here."""
    names = list(modules(LIST.read_text(encoding="utf-8").splitlines()))
    missing = uncompiled(names)
    for name in missing:
        print(f"not compiled: {name} ({sys.modules[name].__file__})", file=sys.stderr)
    print(f"compiled: {len(names) - len(missing)} of {len(names)} modules")
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
