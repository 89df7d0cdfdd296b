"""Marks are found wherever pytest would find them, and the pages follow from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import conformance, traps
from tools.marks import Marked, find_marks

SOURCE = '''
import pytest

pytestmark = pytest.mark.trap(1)


@pytest.mark.trap(2, 3)
def test_a():
    """pytest.mark.trap(9) in a text is not a mark."""


class TestB:
    @pytest.mark.trap(4)
    @pytest.mark.spec("MQTT-3.3.1-2", "MQTT-3.3.1-2@3.1.1")
    async def test_c(self): ...


@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.spec("MQTT-2.2.1-3"))])
def test_d(x): ...
'''
TABLE = """
[[group]]
name = "Group"
trap = [
  { number = 1, title = "First.", source = "A" },
  { number = 2, title = "Second.", source = "B" },
  { number = 3, title = "Third.", source = "C", outside = "one machine" },
  { number = 4, title = "Fourth.", source = "D" },
  { number = 5, title = "Fifth.", source = "E" },
]
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_x.py").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/traps.toml").write_text(TABLE, encoding="utf-8")
    return tmp_path


def test_find_marks(root: Path) -> None:
    assert find_marks("trap", root) == [
        Marked(1, "tests/test_x.py", ""),
        Marked(2, "tests/test_x.py", "test_a"),
        Marked(3, "tests/test_x.py", "test_a"),
        Marked(4, "tests/test_x.py", "TestB.test_c"),
    ]
    assert find_marks("spec", root)[-1] == Marked("MQTT-2.2.1-3", "tests/test_x.py", "test_d")


def test_traps_page(root: Path) -> None:
    page = traps.render(root)
    assert "3 of 4 have their test." in page
    assert "| 1 | First. | A | `tests/test_x.py` |\n" in page
    assert "| 2 | Second. | B | `tests/test_x.py` test_a |\n" in page
    assert "| 5 | Fifth. | E | no test yet |\n" in page
    inside, outside = page.split("## Outside the embedded profile")
    assert "Third." not in inside
    assert "| 3 | Third. | C | one machine |\n" in outside
    assert [trap.number for trap in traps.missing(root)] == [5]


def test_a_trap_that_the_table_does_not_have_is_refused(root: Path) -> None:
    (root / "tests/test_y.py").write_text(SOURCE.replace("trap(4)", "trap(6)"), encoding="utf-8")
    with pytest.raises(ValueError, match=r"\[6\]"):
        traps.render(root)


def test_the_table_names_all_54() -> None:
    numbers = [trap.number for trap in traps.load()]
    assert numbers == list(range(1, 55))


def test_conformance_page(root: Path) -> None:
    page = conformance.render(root)
    assert "3 statements, 3 tests." in page
    assert page.index("## Section 2.2.1") < page.index("## Section 3.3.1")
    assert "| MQTT-3.3.1-2 | `tests/test_x.py` test_c |\n" in page


def test_statements_sort_as_in_the_specification() -> None:
    names = ["MQTT-3.10.1-1", "MQTT-3.2.1-1@3.1.1", "MQTT-3.2.1-1", "MQTT-3.2.1-10"]
    assert sorted(names, key=conformance.sort_key) == [
        "MQTT-3.2.1-1",
        "MQTT-3.2.1-1@3.1.1",
        "MQTT-3.2.1-10",
        "MQTT-3.10.1-1",
    ]
    with pytest.raises(ValueError, match="not a statement"):
        conformance.sort_key("3.2.1-1")
