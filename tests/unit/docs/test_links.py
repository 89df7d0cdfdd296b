"""Links of the documentation lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

from tools.site import DOCS, ROOT, anchors, broken


def test_none_is_broken() -> None:
    assert broken([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]) == []


def test_a_broken_one_is_noticed(tmp_path: Path) -> None:
    page = ROOT / "docs" / "index.md"
    assert anchors("# A b\n## What's `new`?\n```\n# no\n```\n") == {"a-b", "whats-new"}
    copy = tmp_path / "page.md"
    copy.write_text(
        f"[a]({page}) [b](none.md) [c]({page}#none) [d](https://broker.example/z) `[e](f)`",
        encoding="utf-8",
    )
    assert len(broken([copy])) == 2


def test_the_site_has_every_page() -> None:
    named = set(re.findall(r"(\S+\.md)", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    pages = [page.relative_to(DOCS) for page in DOCS.rglob("*.md")]
    assert named == {page.as_posix() for page in pages if page.parts[0] != "adr"}
