"""The page of on-disk formats has every table and every version that the code has."""

from __future__ import annotations

from perdure.storage.rocksdb import layout_bitmask, layout_v1, opening
from perdure.storage.rocksdb.engine import FIXED_TABLES
from tools.formats_page import TABLES, VERSIONS, markdown, numbers, reference
from tools.references import TARGET


def test_page_is_current() -> None:
    page = (TARGET / "on-disk-formats.md").read_text(encoding="utf-8")
    assert page == reference(), "run: make docs"


def test_every_table_is_on_it() -> None:
    assert set(FIXED_TABLES) == set(TABLES)
    page = reference()
    for name in (*FIXED_TABLES, "g00000001.data", "g00000001.index"):
        assert f"| `{name}`" in page


def test_every_version_is_on_it() -> None:
    found = numbers()
    assert set(found) == set(VERSIONS), "say in tools.formats_page what it is the version of"
    page = reference()
    for name, number in found.items():
        what, module = VERSIONS[name], name.rpartition(".")[0]
        assert f"| {what} | {number} | `perdure.{module}` |" in page
    assert found["storage.rocksdb.opening.FORMAT"] == opening.FORMAT
    assert found["storage.rocksdb.layout_v1.LAYOUT"] == layout_v1.LAYOUT
    assert found["storage.rocksdb.layout_v1.SINGLES_LAYOUT"] == layout_v1.SINGLES_LAYOUT
    assert found["storage.rocksdb.layout_bitmask.LAYOUT"] == layout_bitmask.LAYOUT


def test_drawings_are_fenced() -> None:
    docstring = "A ``b``.\n\nOf ``c``::\n\n    x ``y``\n\n      z\n\nEnd.\n::\n\n    last\n"
    assert markdown(docstring) == (
        "A `b`.\n\nOf `c`:\n\n```text\nx ``y``\n\n  z\n```\n\nEnd.\n```text\nlast\n```\n"
    )
