"""Tables for what a log has learned: one for each topic structure whose levels vary.

Which table a message belongs to must not change between two attempts to archive it, but a log
goes on learning. So the tables of an archive are a **plan**: a new one holds for the messages
after an offset, and keeps the tables of the last one, in their order, before its own. Knows no
files and no Spark.

Invariant: ``extended`` never takes a topic away from a table of the plan before.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from perdure.pipeline.tables import CATCH_ALL, TableSpec
from perdure.topic.matching import compile_filter, covers

TABLES_MAX: Final = 200
"""Tables of a plan; topics of what was learned later are in the catch-all."""

_UNUSABLE: Final = re.compile(r"[^a-z0-9]+")
_NAME_MAX: Final = 48


def covering(structures: Iterable[str]) -> dict[str, str]:
    """Each structure with the most general one of them that covers it; at least itself."""
    structures = list(structures)
    general: dict[int, list[str]] = defaultdict(list)
    for structure in structures:
        if "+" in structure.split("/"):
            general[structure.count("/")].append(structure)
    for patterns in general.values():
        patterns.sort(key=lambda pattern: (-pattern.split("/").count("+"), pattern))
    matchers = {
        depth: [compile_filter(pattern) for pattern in patterns]
        for depth, patterns in general.items()
    }
    found = {}
    for structure in structures:
        candidates = matchers.get(structure.count("/"), [])
        covered_by = (each.filter for each in candidates if each.matches(structure))
        found[structure] = next(covered_by, structure)
    return found


def extended(
    plan: Sequence[TableSpec], structures: Iterable[str], *, tables_max: int = TABLES_MAX
) -> tuple[TableSpec, ...]:
    """A plan with tables for more structures at its end.

    Args:
        plan: tables without the catch-all.
        structures: in the order in which they were learned.
        tables_max: most tables of the plan.
    """
    found = list(plan)
    names = {spec.name for spec in found} | {CATCH_ALL}
    for pattern in dict.fromkeys(covering(structures).values()):
        if len(found) >= tables_max:
            break
        if "+" not in pattern.split("/") or any(covers(spec.filter, pattern) for spec in found):
            continue
        name = table_name(pattern, names)
        names.add(name)
        found.append(_table(name, pattern))
    return tuple(found)


def _table(name: str, pattern: str) -> TableSpec:
    varying = [index for index, level in enumerate(pattern.split("/")) if level == "+"]
    levels = tuple((index, f"level_{index + 1}") for index in varying)
    return TableSpec(name, pattern, levels, has_fields=True)


def table_name(pattern: str, taken: Collection[str]) -> str:
    """A name for a structure: its levels that do not vary; with a number if that is taken."""
    levels = [level for level in pattern.split("/") if level not in {"+", "#"}]
    name = _UNUSABLE.sub("_", "_".join(levels).lower()).strip("_")[:_NAME_MAX].strip("_")
    if not name:
        name = f"levels_{pattern.count('/') + 1}"
    elif name[0].isdigit():
        name = f"t_{name}"
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    return found
