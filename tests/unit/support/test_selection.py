"""Four samples take every test, shares take each file once, and what can't be read is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import selection
from tests.support.selection import KAFKA_ONE_IN, SAMPLED_ONE_IN, chosen

UNIT = [f"tests/unit/test_{number}.py::test_a" for number in range(20)]
UNIT += ["tests/contract/test_0.py::test_a[memory]"]
CRASH = [f"tests/crash/test_x.py::test_{number}" for number in range(60)]
CONTRACT = [f"tests/contract/test_{number}.py::test_a[redis]" for number in range(20)]
WIRE = [f"tests/wire/test_{number}.py::test_a[{kind}]" for number in range(20) for kind in "vsc"]


def _item(node: str, **marks: dict[str, Any]) -> Any:
    found = {name: SimpleNamespace(kwargs=kwargs) for name, kwargs in marks.items()}
    return SimpleNamespace(nodeid=node, get_closest_marker=found.get)


def _items() -> list[Any]:
    plain = [_item(node) for node in UNIT + CRASH]
    plain += [_item(node, redis={}) for node in CONTRACT]
    for node in WIRE:
        group = {} if node.endswith("[v]") else {"sampled": {"group": node.partition("::")[0]}}
        plain.append(_item(node, **group))
    return plain


def _taken(items: list[Any]) -> set[str]:
    kept, left = chosen(items)
    assert len(kept) + len(left) == len(items)
    return {item.nodeid for item in kept}


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PERDURE_SAMPLE", "PERDURE_SHARE", "PERDURE_SHARED"):
        monkeypatch.delenv(name, raising=False)


def test_all_run_if_nobody_chooses() -> None:
    assert _taken(_items()) == {*UNIT, *CRASH, *CONTRACT, *WIRE}
    assert selection.told() == ""


def test_samples_that_follow_each_other_take_all(monkeypatch: pytest.MonkeyPatch) -> None:
    always = {*UNIT, *(node for node in WIRE if node.endswith("[v]"))}
    seen: list[str] = []
    for seed in range(7, 7 + SAMPLED_ONE_IN):
        monkeypatch.setenv("PERDURE_SAMPLE", str(seed))
        taken = _taken(_items())
        assert always < taken
        assert str(seed) in selection.told()
        for node in WIRE:  # a file's process serves all of its cases or is not started
            assert (node in taken) == (node[:-2] + "s]" in taken) or node in always
        seen += taken - always
    assert sorted(seen) == sorted({*CRASH, *CONTRACT, *WIRE} - always)


def test_kafka_is_asked_less_often_but_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [_item(node, kafka={}) for node in CRASH]
    for variable, samples in (("PERDURE_CI", SAMPLED_ONE_IN), ("", KAFKA_ONE_IN)):
        monkeypatch.delenv("PERDURE_CI", raising=False)
        if variable:
            monkeypatch.setenv(variable, "1")
        seen: list[str] = []
        for seed in range(samples):
            monkeypatch.setenv("PERDURE_SAMPLE", str(seed))
            seen += _taken(items)
        assert sorted(seen) == sorted(CRASH)


def test_shares_take_each_file_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_SHARED", "tests/wire tests/unit/other")
    halves = []
    for index in range(2):
        monkeypatch.setenv("PERDURE_SHARE", f"{index}/2:11")
        halves.append(_taken(_items()))
        assert {*UNIT, *CRASH, *CONTRACT} < halves[index]
    assert halves[0] | halves[1] == {*UNIT, *CRASH, *CONTRACT, *WIRE}
    shared = halves[0] & halves[1]
    assert shared == {*UNIT, *CRASH, *CONTRACT}
    files = [{node.partition("::")[0] for node in half - shared} for half in halves]
    assert files[0]
    assert files[1]
    assert not files[0] & files[1]
    monkeypatch.setenv("PERDURE_SHARE", "0/2:12")
    assert _taken(_items()) == halves[1]


def test_a_test_of_a_server_is_in_every_share(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [_item(node, redis={}) for node in WIRE]
    for index in range(2):
        monkeypatch.setenv("PERDURE_SHARE", f"{index}/2:3")
        assert _taken(items) == set(WIRE)


@pytest.mark.parametrize("given", ["1", "2/2:1", "a/b:c", "0/0:1", "1/2"])
def test_a_share_that_is_none(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("PERDURE_SHARE", given)
    with pytest.raises(pytest.UsageError, match="PERDURE_SHARE"):
        chosen([])
