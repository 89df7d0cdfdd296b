"""Interpolation: variables, defaults, files, escapes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.config import interpolate as module
from perdure.config.interpolate import Interpolated, interpolate

ENVIRON = {"HOST": "broker", "EMPTY": "", "TRICK": "${HOST}"}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("${HOST}", "broker"),
        ("a-${HOST}-${HOST}", "a-broker-broker"),
        ("${PORT:1883}", "1883"),
        ("${HOST:other}", "broker"),
        ("${PORT:}", ""),
        ("${EMPTY:x}", ""),
        ("${BIND:[::1]:1883}", "[::1]:1883"),
        ("${A:${B:${HOST}}}", "broker"),
        ("$${HOST}", "${HOST}"),
        ("x$${HOST}${HOST}", "x${HOST}broker"),
    ],
)
def test_references(text: str, result: str) -> None:
    assert interpolate(text, ENVIRON) == Interpolated(result, True, False)


@pytest.mark.parametrize("text", ["", "plain", "$HOST", "5$", "{HOST}", "$$"])
def test_text_without_references_is_untouched(text: str) -> None:
    assert interpolate(text, ENVIRON) == Interpolated(text, False, False)


def test_a_value_is_not_interpolated_again() -> None:
    assert interpolate("${TRICK}", ENVIRON).text == "${HOST}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${NOPE}", "NOPE is not set and has no default"),
        ("${HOST", "no closing brace"),
        ("${}", "is not"),
        ("${a b}", "is not"),
        ("${file:/does/not/exist}", "cannot read /does/not/exist"),
    ],
)
def test_bad_references(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        interpolate(text, ENVIRON)


def test_depth_is_bounded() -> None:
    with pytest.raises(ValueError, match="too deeply"):
        interpolate("${A:" * 20 + "x" + "}" * 20, {})


def test_files_are_secret_and_lose_their_line_end(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("hunter2\n")
    assert interpolate(f"<${{file:{tmp_path}/s}}>", {}) == Interpolated("<hunter2>", True, True)
    assert interpolate(f"${{NO:${{file:{tmp_path}/s}}}}", {}).secret


def test_files_are_bounded_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILE_BYTES_MAX", 4)
    (tmp_path / "long").write_text("12345")
    with pytest.raises(ValueError, match="larger than 4"):
        interpolate(f"${{file:{tmp_path}/long}}", {})
    (tmp_path / "bin").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="not UTF-8"):
        interpolate(f"${{file:{tmp_path}/bin}}", {})


@given(st.text(alphabet="${}:aA_ ", max_size=30))
def test_any_text_gives_text_or_a_value_error(text: str) -> None:
    try:
        result = interpolate(text, {"A": "1"})
    except ValueError:
        return
    assert result.changed == ("${" in text)
