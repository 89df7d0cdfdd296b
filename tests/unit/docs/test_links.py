"""Links of the documentation lead somewhere."""

from __future__ import annotations

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
