"""Reads `pytest.mark.NAME(...)` out of the test sources without running them.

The generated pages and the tidy check share it. It looks at the syntax alone, so a page can be
made where a test's imports are missing.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, order=True)
class Marked:
    """One argument of one mark.

    Attributes:
        value: the argument: a trap's number, a statement's identifier.
        path: the test file, relative to the repository.
        test: function, ``Class.method`` or class that carries it; empty = the whole module.
    """

    value: str | int
    path: str
    test: str


def find_marks(name: str, root: Path = ROOT) -> list[Marked]:
    """All uses of ``pytest.mark.<name>`` under ``tests``, sorted by file and place."""
    found: list[Marked] = []
    for path in sorted((root / "tests").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        where = path.relative_to(root).as_posix()
        found.extend(Marked(value, where, test) for value, test in marks_of(tree, name))
    return found


def marks_of(tree: ast.AST, name: str, scope: tuple[str, ...] = ()) -> list[tuple[str | int, str]]:
    """Arguments of the mark under ``tree``, each with the dotted name of what carries it."""
    found: list[tuple[str | int, str]] = []
    for node in ast.iter_child_nodes(tree):
        inner = scope
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = (*scope, node.name)
        if isinstance(node, ast.Call) and _is_mark(node.func, name):
            # A decorator is a child of what it decorates, so the scope is already right.
            found.extend(
                (argument.value, ".".join(inner))
                for argument in node.args
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str | int)
            )
        found.extend(marks_of(node, name, inner))
    return found


def _is_mark(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Attribute) and ast.unparse(node) == f"pytest.mark.{name}"
