"""What the page on the architecture says of two walks through the code is what is walked.

Steps are counted as a reader counts them: a function once, however often it is called. A walk that
becomes longer, or goes elsewhere, has to say so on the page.
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import perdure
from tests.unit.broker.harness import Client, make_sim

ROOT = Path(perdure.__file__).parent
PAGE = Path(__file__).parents[3] / "docs/internals/architecture.md"
CLIENTS = "harness.py"
NEW_MAX = 2
"""Files by which the page may be behind: who changes one line elsewhere need not know of it."""
STORE = "storage/memory/"
"""The store that the tests have; another backend has its own walk behind ``Database``."""


class Walk:
    """The functions that were called for the broker, in order of their first call."""

    def __init__(self) -> None:
        self.steps: dict[tuple[str, str, int], None] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        file = Path(frame.f_code.co_filename)
        if event != "call" or not file.is_relative_to(ROOT):
            return
        caller = frame.f_back
        while caller is not None and Path(caller.f_code.co_filename).is_relative_to(ROOT):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename.endswith(CLIENTS):
            return
        name = file.relative_to(ROOT).as_posix()
        if not name.startswith(STORE):
            self.steps[name, frame.f_code.co_name, frame.f_code.co_firstlineno] = None

    def files(self) -> set[str]:
        return {file for file, _, _ in self.steps}


@contextmanager
def walking() -> Iterator[Walk]:
    walk = Walk()
    before = sys.getprofile()
    gc.disable()  # what other tests have left ends in functions of the broker, too
    sys.setprofile(walk)
    try:
        yield walk
    finally:
        sys.setprofile(before)
        gc.enable()


def published() -> Walk:
    """A PUBLISH with QoS 1, from the bytes to its subscriber and to its PUBACK."""
    sim = make_sim()
    reader, writer = Client(sim, "r", acks=False), Client(sim, "w")
    for client in (reader, writer):
        client.connect()
    reader.subscribe("t", qos=1)
    writer.deliver("t")
    sim.run_for(20_000)
    with walking() as walk:
        writer.deliver("t")
    assert len(reader.messages) == 2
    return walk


def returned() -> Walk:
    """A CONNECT of a session that has one message waiting, until it has that."""
    sim = make_sim()
    reader, writer = Client(sim, "r", acks=False), Client(sim, "w")
    for client in (reader, writer):
        client.connect()
    reader.subscribe("t", qos=1)
    reader.cut()
    writer.deliver("t")
    with walking() as walk:
        assert reader.connect().session_present
        assert reader.payloads() == [b"x"]
    return walk


def _told(heading: str) -> tuple[set[str], int]:
    """The files in the table below a heading, and how many functions it says are enough."""
    text = PAGE.read_text(encoding="utf-8")
    section = text.partition(f"### {heading}\n")[2].partition("\n#")[0]
    files = re.findall(r"`([a-z_0-9/]+\.py)`", section.partition("|")[2])
    assert len(files) == len({*files}), "a file stands twice"
    found = re.search(r"(\d+) functions in (\d+) files", section)
    assert found is not None
    assert len(files) == int(found[2])
    return {*files}, int(found[1])


def _check(heading: str, take: Callable[[], Walk]) -> None:
    files, functions = _told(heading)
    walk = take()
    assert files <= walk.files(), "the page names what is not on the way"
    assert len(walk.files() - files) <= NEW_MAX, f"not on the page: {walk.files() - files}"
    assert len(walk.steps) <= functions


def test_the_walk_of_a_publish_is_as_the_page_says() -> None:
    _check("A PUBLISH with QoS 1", published)


def test_the_walk_of_a_session_that_returns_is_as_the_page_says() -> None:
    _check("A session returns", returned)
