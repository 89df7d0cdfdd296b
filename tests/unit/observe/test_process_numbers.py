"""The numbers of the process are those of the library's collector, without a list of its files."""

from __future__ import annotations

import os
import socket
import time

import prometheus_client
import pytest
from prometheus_client.registry import CollectorRegistry

from perdure.observe import process_numbers
from perdure.observe.process_numbers import ProcessCollector


def by_name(registry: CollectorRegistry) -> dict[str, tuple[str, str, float]]:
    return {
        family.name: (family.type, family.documentation, family.samples[0].value)
        for family in registry.collect()
    }


def test_names_and_numbers_are_the_library_s() -> None:
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    prometheus_client.ProcessCollector(registry=theirs)
    ours.register(ProcessCollector())
    wanted, found = by_name(theirs), by_name(ours)
    assert list(found) == list(wanted)
    for name, (kind, about, value) in wanted.items():
        assert found[name][:2] == (kind, about)
        assert found[name][2] == pytest.approx(value, rel=0.2, abs=1.0), name


def test_open_files_are_counted_and_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.stat("/proc/self/fd").st_size:  # noqa: PTH116
        pytest.skip("this kernel does not tell the count")

    def listdir(_path: object) -> list[str]:
        raise AssertionError("they are listed")

    monkeypatch.setattr(os, "listdir", listdir)
    before = process_numbers.open_files()
    assert before is not None
    with socket.socket():
        assert process_numbers.open_files() == before + 1


def test_a_process_began_before_now_and_after_the_machine() -> None:
    registry = CollectorRegistry()
    registry.register(ProcessCollector())
    started_s = by_name(registry)["process_start_time_seconds"][2]
    assert time.time() - 86_400 < started_s <= time.time() + 1
