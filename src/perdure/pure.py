"""Which build runs, and ``PERDURE_PURE_PYTHON=1``: source although compiled modules are installed.

The latter is for debugging (a compiled frame has no local variables) and to compare both builds.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType


class SourceFinder:
    """Finds the modules of this package as source files only."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The source of a module below ``perdure``; None for any other."""
        if not fullname.startswith("perdure.") or path is None:
            return None
        for entry in path:
            finder = FileFinder(entry, (SourceFileLoader, SOURCE_SUFFIXES))
            spec = finder.find_spec(fullname)
            if spec is not None:
                return spec
        return None


def build() -> str:
    """``compiled`` or ``pure``: what the hot modules are."""
    origin = importlib.import_module("perdure.mqtt.decode").__file__ or ""
    return "pure" if origin.endswith(".py") else "compiled"


def use_source() -> None:
    """Prefer source over compiled modules from now on."""
    if SourceFinder not in sys.meta_path:
        sys.meta_path.insert(0, SourceFinder)
