"""Each rule of tidy finds its planted fault and passes what is in order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import tidy


def write(root: Path, files: dict[str, str]) -> list[Path]:
    """Write files under ``root``; returns their names as tidy gets them."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return [Path(name) for name in files]


def texts(findings: Iterator[tidy.Finding]) -> list[str]:
    return [f"{finding.where}: {finding.text}" for finding in findings]


def test_sizes(tmp_path: Path) -> None:
    long_function = "def f():\n" + "    pass\n" * 60
    files = write(
        tmp_path,
        {
            "src/a.py": long_function,
            "src/b.py": "x = 1\n" * 401,
            "src/c.py": "def f():\n" + "    pass\n" * 59,
            "tests/d.py": long_function,
        },
    )
    findings = list(tidy.check_sizes(tmp_path, files))
    assert texts(iter(findings)) == ["src/a.py:1: f: 61 lines", "src/b.py: 401 lines"]
    assert not any(finding.is_error for finding in findings)


def test_mirror(tmp_path: Path) -> None:
    code = "def f(): ...\n"
    files = write(
        tmp_path,
        {
            "src/perdure/topic/names.py": code,
            "src/perdure/topic/shapes.py": code,
            "src/perdure/topic/__init__.py": code,
            "src/perdure/model/ids.py": "A = int\n",
            "src/perdure/net/tcp.py": code,
            "tests/unit/topic/test_names.py": "",
        },
    )
    assert texts(tidy.check_mirror(tmp_path, files)) == [
        "src/perdure/topic/shapes.py: no tests/unit/topic/test_shapes.py"
    ]


@pytest.mark.parametrize(
    ("name", "line", "found"),
    [
        ("docs/a.md", "see https" + "://mirror.registry.dev/x", "the host mirror.registry.dev"),
        ("docs/a.md", "see https" + "://github.com/x", None),
        ("docs/a.md", "see http" + "://user@broker.example/x", None),
        ("docs/a.md", "see http" + "://h:80/x", None),
        ("requirements/a.txt", "--index-url https" + "://github.com", "the host github.com"),
        ("a.sh", "cd /" + "home/someone", "an absolute path of a machine"),
        ("a.sh", "ls /etc/perdure ~/home/x a/home/b", None),
        ("a.py", "# TO" + "DO later", "a marker of unfinished work"),
        (
            "a.py",
            "    except (OSError, msgspec.Decode" + "Error) as error:",
            "catch ValueError, which UnicodeDecodeError is too",
        ),
        ("a.bin", "/" + "home/someone", None),
    ],
)
def test_places(tmp_path: Path, name: str, line: str, found: str | None) -> None:
    files = write(tmp_path, {name: f"first\n{line}\n"})
    expected = [] if found is None else [f"{name}:2: {found}"]
    assert texts(tidy.check_places(tmp_path, files)) == expected


@pytest.mark.parametrize(
    ("name", "text", "is_good"),
    [
        ("12.fix.md", "It works again.\n", True),
        ("+word.misc.md", "A word.\n", True),
        ("12.bugfix.md", "It works again.\n", False),
        ("word.fix.md", "It works again.\n", False),
        ("12.fix.md", "# Heading.\n", False),
        ("12.fix.md", "no end\n", False),
        ("12.fix.md", "", False),
        ("README.md", "# News\n", True),
    ],
)
def test_fragments(tmp_path: Path, name: str, text: str, is_good: bool) -> None:
    files = write(tmp_path, {f"newsfragments/{name}": text})
    assert (not list(tidy.check_fragments(tmp_path, files))) is is_good


def test_headings(tmp_path: Path) -> None:
    files = write(
        tmp_path,
        {
            "good.md": "# One\n\n```sh\n# a comment\n```\n\n## Two\n",
            "none.md": "text\n",
            "docs/two.md": "# One\n\n# Two\n",
            "newsfragments/1.fix.md": "Text.\n",
        },
    )
    assert texts(tidy.check_headings(tmp_path, files)) == [
        "none.md: 0 first-level headings",
        "docs/two.md: 2 first-level headings",
    ]


def test_index(tmp_path: Path) -> None:
    files = write(
        tmp_path,
        {
            "docs/index.md": "[A](howto/a.md)\n",
            "docs/howto/a.md": "",
            "docs/howto/b.md": "",
            "docs/adr/0001-x.md": "",
        },
    )
    assert texts(tidy.check_index(tmp_path, files)) == [
        "docs/howto/b.md: not linked from docs/index.md"
    ]


def test_locks(tmp_path: Path) -> None:
    project = (
        '[project]\ndependencies = ["click>=8", "PyYAML>=6"]\n'
        '[project.optional-dependencies]\ndev = ["ruff>=2"]\n'
    )
    write(
        tmp_path,
        {
            "pyproject.toml": project,
            "requirements/core.txt": "click==8.1 \\\n    --hash=x\npyyaml==6.0.1 ; os == 'x'\n",
            "requirements/dev.txt": "click==7.9\npyyaml==6.0\n",
        },
    )
    assert texts(tidy.check_locks(tmp_path)) == [
        "requirements/dev.txt: click>=8, but locked 7.9: make lock",
        "requirements/dev.txt: ruff>=2, but locked None: make lock",
    ]
