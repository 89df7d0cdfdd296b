"""Builds the site of docs/: ``python -m tools.site ZENSICAL``; broken links and anchors fail it.

The pages link to files of the repository as well (sources, the changelog), which no site has: those
become links into the repository's own tree, after it was checked that they exist.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"
BUILD: Final = ROOT / "build/site"
LINK: Final = re.compile(r"(\[[^\]]*\]\()([^)\s#]*)(#[^)\s]*)?\)")
EXTERNAL: Final = ("http://", "https://", "mailto:")
HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)
FENCE: Final = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as the site makes them, and as a forge does."""
    found = set()
    for heading in HEADING.findall(FENCE.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        plain = re.sub(r"[^\w\s-]", "", plain).lower()
        found.add(plain.replace(" ", "-"))
        plain = plain.strip()
        found.add(re.sub(r"[-\s]+", "-", plain))
    return found


def links(page: Path) -> Iterator[tuple[str, str]]:
    """(path, anchor) of each link of a page to something of ours."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for _, target, anchor in LINK.findall(re.sub(r"`[^`\n]*`", "", text)):
        if not target.startswith(EXTERNAL):
            yield target, anchor.removeprefix("#")


def broken(pages: list[Path]) -> list[str]:
    """Links of pages to files, or headings, that are not there."""
    wrong = []
    for page in pages:
        for target, anchor in links(page):
            path = (page.parent / target).resolve() if target else page
            if not path.exists():
                wrong.append(f"{os.path.relpath(page, ROOT)}: {target}")
            elif (
                anchor
                and path.suffix == ".md"
                and anchor not in anchors(path.read_text(encoding="utf-8"))
            ):
                wrong.append(f"{os.path.relpath(page, ROOT)}: {target}#{anchor}")
    return wrong


def _for_site(page: Path, text: str) -> str:
    """A page's text with links that leave docs/ taken out: the site has no such files."""

    def replaced(found: re.Match[str]) -> str:
        head, target, anchor = found[1], found[2], found[3] or ""
        if not target or target.startswith(EXTERNAL):
            return found[0]
        path = (page.parent / target).resolve()
        if path.is_relative_to(DOCS) and path.suffix == ".md":
            return f"{head}{target}{anchor})"
        return head[1:-2]

    return LINK.sub(replaced, text)


def prepare(target: Path) -> None:
    """The pages and the settings of the site, below a directory."""
    shutil.rmtree(target, ignore_errors=True)
    for page in sorted(DOCS.rglob("*.md")):
        copy = target / "docs" / page.relative_to(DOCS)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(_for_site(page, page.read_text(encoding="utf-8")), encoding="utf-8")
    shutil.copy(ROOT / "mkdocs.yml", target)
    named = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    missing = sorted(name for name in named if not (DOCS / name).exists())
    assert not missing, f"mkdocs.yml names what is not there: {missing}"
    yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def main(zensical: str) -> int:
    """Check the links and build; the exit code."""
    wrong = broken([*DOCS.rglob("*.md"), ROOT / "README.md"])
    for each in wrong:
        print(f"error: broken link: {each}", file=sys.stderr)
    prepare(BUILD)
    done = subprocess.run([zensical, "build", "--strict", "--clean"], cwd=BUILD, check=False)
    return done.returncode or bool(wrong)


if __name__ == "__main__":
    sys.exit(main(str(Path(sys.argv[1]).resolve())))
