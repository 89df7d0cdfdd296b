"""House rules that no other tool checks.

Errors fail the run; notes are told and do not. Run it with ``python -m tools.tidy``.

=============  =====  ====================================================================
rule           kind   what
=============  =====  ====================================================================
size           note   a module over 400 lines, a function over 60
mirror         error  a module of a pure room without its test module
place          error  an absolute path of a machine, or a host that the project need not name
fragment       error  a news fragment with a wrong name or text
heading        error  a document without exactly one first-level heading
generated      error  a generated page that is not what its generator writes
index          error  a page under docs/ that docs/index.md does not link
lock           error  a dependency that the lock files do not have, or have in another version
debug          error  a marker of unfinished work
decode         error  ``except msgspec.DecodeError``: bytes that are no UTF-8 raise another error
=============  =====  ====================================================================
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from tools import conformance, references, traps
from tools.marks import ROOT

MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
PURE_ROOMS = ("model", "mqtt", "topic", "content", "session")
FRAGMENT_KINDS = ("break", "feature", "fix", "perf", "doc", "misc")

# Hosts that texts may name: documentation that a reader is sent to, and names that are reserved.
KNOWN_HOSTS = {
    "127.0.0.1",
    "0.0.0.0",
    "localhost",
    "docs.oasis-open.org",
    "www.apache.org",
    "json-schema.org",
    "github.com",
    "keepachangelog.com",
    "semver.org",
}
_HOST = re.compile(r"\b(?:https?|ftp|git|ssh)://(?:[^\s/@\"'<>]+@)?([A-Za-z0-9.-]+)")
_MACHINE_PATH = re.compile(r"(?<![\w.~])/(?:home|root|Users|work|mnt|opt)/\w")
_UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")
_DECODE_ERROR = re.compile(r"^\s*except\b.*\bmsgspec\.DecodeError\b")
_LOCKED = re.compile(r"^([a-z0-9-]+)==([^\s;]+)", re.MULTILINE)
_FRAGMENT = re.compile(rf"^(?:\d+|\+[a-z0-9-]+)\.(?:{'|'.join(FRAGMENT_KINDS)})(?:\.\d+)?\.md$")
_TEXT_SUFFIXES = {
    ".cfg",
    ".in",
    ".js",
    ".json",
    ".md",
    ".py",
    ".sh",
    ".toml",
    ".txt",
    ".yaml",
    ".yml",
    "",
}


@dataclass(frozen=True)
class Finding:
    """One thing that is not in order.

    Attributes:
        rule: name of the rule.
        where: ``path`` or ``path:line``.
        text: what is wrong.
        is_error: fails the run.
    """

    rule: str
    where: str
    text: str
    is_error: bool = True


def tracked_files(root: Path) -> list[Path]:
    """Files that git tracks or would add, relative to the repository."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    )
    return [Path(name) for name in listing.stdout.splitlines() if (root / name).is_file()]


def check_sizes(root: Path, files: list[Path]) -> Iterator[Finding]:
    """Modules and functions that have grown past the house's sizes."""
    for path in files:
        if path.suffix != ".py" or path.parts[0] != "src":
            continue
        text = (root / path).read_text(encoding="utf-8")
        lines = text.count("\n")
        if lines > MODULE_LINES_MAX:
            yield Finding("size", f"{path}", f"{lines} lines", is_error=False)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > FUNCTION_LINES_MAX:
                    where = f"{path}:{node.lineno}"
                    yield Finding("size", where, f"{node.name}: {length} lines", is_error=False)


def check_mirror(root: Path, files: list[Path]) -> Iterator[Finding]:
    """Each module of a pure room has the test module of its name."""
    package = Path("src/perdure")
    for path in files:
        if path.suffix != ".py" or not path.is_relative_to(package):
            continue
        inner = path.relative_to(package)
        if inner.parts[0] not in PURE_ROOMS or inner.name == "__init__.py":
            continue
        twin = Path("tests/unit", *inner.parts[:-1], f"test_{inner.name}")
        # A module that declares names alone has nothing to run.
        if not (root / twin).is_file() and _has_code(root / path):
            yield Finding("mirror", str(path), f"no {twin}")


def check_places(root: Path, files: list[Path]) -> Iterator[Finding]:
    """No paths of a machine and no hosts but the known ones; no unfinished work in the source."""
    for path in files:
        if path.suffix not in _TEXT_SUFFIXES or path.name == "tidy.py":
            continue
        try:
            lines = (root / path).read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, start=1):
            where = f"{path}:{number}"
            if _MACHINE_PATH.search(line):
                yield Finding("place", where, "an absolute path of a machine")
            for host in _HOST.findall(line):
                # A word without a dot is a stand-in, not a host.
                known = (
                    host in KNOWN_HOSTS
                    or "." not in host
                    or host.endswith((".example", ".test", ".invalid"))
                )
                if path.parts[0] == "requirements" or not known:
                    yield Finding("place", where, f"the host {host}")
            if path.suffix == ".py" and _UNFINISHED.search(line):
                yield Finding("debug", where, "a marker of unfinished work")
            if path.suffix == ".py" and _DECODE_ERROR.search(line):
                yield Finding("decode", where, "catch ValueError, which UnicodeDecodeError is too")


def check_fragments(root: Path, files: list[Path]) -> Iterator[Finding]:
    """News fragments: ``<issue>.<kind>.md`` or ``+<word>.<kind>.md``, full sentences."""
    for path in files:
        if path.parts[0] != "newsfragments" or path.name in {"README.md", ".gitignore"}:
            continue
        if not _FRAGMENT.match(path.name):
            yield Finding("fragment", str(path), f"the kinds are {', '.join(FRAGMENT_KINDS)}")
            continue
        text = (root / path).read_text(encoding="utf-8").strip()
        if not text or not text.endswith(".") or text.startswith(("#", "-", "*")):
            yield Finding("fragment", str(path), "full sentences for users, without a heading")


def check_headings(root: Path, files: list[Path]) -> Iterator[Finding]:
    """One first-level heading for each document."""
    for path in files:
        if path.suffix != ".md" or path.parts[0] == "newsfragments":
            continue
        text = (root / path).read_text(encoding="utf-8")
        prose = re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.MULTILINE | re.DOTALL)
        count = len(re.findall(r"^# ", prose, flags=re.MULTILINE))
        if count != 1:
            yield Finding("heading", str(path), f"{count} first-level headings")


def check_generated(root: Path) -> Iterator[Finding]:
    """Generated pages are what their generators write now."""
    for page, text in (
        (traps.PAGE, traps.render(root)),
        (conformance.PAGE, conformance.render(root)),
        *((Path("docs/reference", name), render()) for name, render in references.PAGES.items()),
    ):
        path = root / page
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            yield Finding("generated", str(page), "out of date: make docs")


def check_index(root: Path, files: list[Path]) -> Iterator[Finding]:
    """Every page can be found from the first one; decision records by their folder."""
    pages = [path for path in files if path.suffix == ".md" and path.parts[0] == "docs"]
    index = (root / "docs/index.md").read_text(encoding="utf-8")
    for path in pages:
        name = path.relative_to("docs").as_posix()
        if name != "index.md" and not name.startswith("adr/") and f"({name})" not in index:
            yield Finding("index", str(path), "not linked from docs/index.md")


def check_locks(root: Path) -> Iterator[Finding]:
    """The lock files hold what pyproject.toml asks for."""
    with (root / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    asked = {
        "requirements/core.txt": project["dependencies"],
        "requirements/dev.txt": project["dependencies"] + project["optional-dependencies"]["dev"],
        "requirements/spark.txt": project["optional-dependencies"].get("spark", []),
    }
    for name, requirements in asked.items():
        if not requirements:
            continue
        text = (root / name).read_text(encoding="utf-8")
        locked = dict(_LOCKED.findall(text))
        for requirement in map(Requirement, requirements):
            version = locked.get(_normal(requirement.name))
            if version is None or not requirement.specifier.contains(version):
                yield Finding("lock", name, f"{requirement}, but locked {version}: make lock")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _has_code(path: Path) -> bool:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in body)


def run(root: Path = ROOT) -> list[Finding]:
    """All findings, errors first."""
    files = tracked_files(root)
    findings = [
        *check_mirror(root, files),
        *check_places(root, files),
        *check_fragments(root, files),
        *check_headings(root, files),
        *check_generated(root),
        *check_index(root, files),
        *check_locks(root),
        *check_sizes(root, files),
    ]
    return sorted(findings, key=lambda finding: not finding.is_error)


def main() -> int:
    """Print the findings; 1 when one of them is an error."""
    findings = run()
    for finding in findings:
        kind = "error" if finding.is_error else "note"
        sys.stdout.write(f"{kind}: {finding.where}: {finding.rule}: {finding.text}\n")
    errors = sum(finding.is_error for finding in findings)
    sys.stdout.write(f"tidy: {errors} errors, {len(findings) - errors} notes\n")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
