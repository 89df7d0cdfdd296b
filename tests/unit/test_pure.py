"""Source is found where compiled modules are installed too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from perdure.pure import SourceFinder, build


def test_only_our_modules_are_found() -> None:
    assert SourceFinder.find_spec("json.decoder", ["/nowhere"]) is None
    assert SourceFinder.find_spec("perdure.mqtt", None) is None


def test_source_is_preferred(tmp_path: Path) -> None:
    (tmp_path / "hot.py").write_text("", encoding="utf-8")
    (tmp_path / "hot.so").write_bytes(b"not a library")
    spec = SourceFinder.find_spec("perdure.hot", [str(tmp_path)])
    assert spec is not None
    assert spec.origin == str(tmp_path / "hot.py")


def test_a_module_without_source_is_left_to_others(tmp_path: Path) -> None:
    assert SourceFinder.find_spec("perdure.gone", [str(tmp_path)]) is None


def test_the_variable_asks_for_source() -> None:
    code = "import perdure.mqtt.decode as m, perdure.pure as p; print(m.__file__, p.build())"
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={"PERDURE_PURE_PYTHON": "1", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split()[1] == "pure"
    assert found.stdout.split()[0].endswith("decode.py")


def test_build_is_one_of_two() -> None:
    assert build() in ("compiled", "pure")
