"""Builds the hot rooms with mypyc where a C compiler is there; without one, a pure wheel.

Everything else is in pyproject.toml. ``PERDURE_PURE=1`` asks for a pure wheel; an editable
install is always pure, because a compiled module beside its source would hide later edits.
``PERDURE_OPT_LEVEL`` (0 to 3; 3) is the C compiler's: less is sooner there, for tests.
``docs/adr/0002-what-is-compiled.md`` says what is compiled and why.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError

COMPILED = Path(__file__).with_name("compiled.txt")
"""The compiled modules, one path below ``src`` on each line."""


def notice(reason: str) -> None:
    """Tell the person who installs, and go on."""
    sys.stderr.write(f"perdure: pure Python build: {reason}\n")


def extensions() -> list[Extension]:
    """The compiled modules, or none of them with the reason told."""
    if os.environ.get("PERDURE_PURE") == "1":
        notice("PERDURE_PURE=1")
        return []
    if "editable_wheel" in sys.argv or "develop" in sys.argv:
        return []
    if sys.argv[1:2] in (["sdist"], ["egg_info"], ["dist_info"]):
        return []
    compiler = os.environ.get("CC") or str(sysconfig.get_config_var("CC") or "cc")
    if shutil.which(compiler.split()[0]) is None:
        notice(f"no C compiler ({compiler.split()[0]}); it is about half as fast as a compiled one")
        return []
    try:
        from mypyc.build import mypycify
    except ImportError:
        notice("mypyc is not installed")
        return []
    lines = COMPILED.read_text(encoding="utf-8").splitlines()
    modules = [f"src/{line}" for line in lines if line and not line.startswith("#")]
    try:
        built: list[Extension] = mypycify(
            ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent", *modules],
            opt_level=os.environ.get("PERDURE_OPT_LEVEL", "3"),
            multi_file=True,
        )
    except SystemExit as error:  # how mypyc reports that it does not accept the code
        notice(f"mypyc failed ({error.code}); see its messages above")
        return []
    return built


class OptionalBuild(build_ext):
    """Compiles all modules or none: half of them would not import."""

    def run(self) -> None:
        """Compile, a file on each core; a failure leaves a pure build."""
        # What an earlier build of this tree left would be packed too, and be loaded beside ours.
        for stale in Path(self.build_lib).rglob("*.so"):
            stale.unlink()
        sys.stderr.write(
            f"perdure: compiling with mypyc on {os.cpu_count()} cores, a minute or two"
            " (PERDURE_PURE=1 skips it)\n"
        )
        try:
            super().run()
        except (BaseError, OSError) as error:
            notice(f"the compiler failed ({error})")
            for extension in self.extensions:
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            self.extensions = []

    def build_extension(self, ext: Extension) -> None:
        """Compile the sources of one extension side by side, then link them."""
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            compile_all = self.compiler.compile

            def compile_each(sources: list[str], **options: Any) -> list[str]:
                units = pool.map(lambda source: compile_all([source], **options), sources)
                return [name for unit in units for name in unit]

            self.compiler.compile = compile_each
            try:
                super().build_extension(ext)
            finally:
                self.compiler.compile = compile_all


if __name__ == "__main__":
    setup(ext_modules=extensions(), cmdclass={"build_ext": OptionalBuild})
