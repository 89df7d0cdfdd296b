"""Nodes of a cluster have the same offsets and rows of their own: any of them goes on for another.

Two directories stand for two nodes: they have the same messages, in other generations.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.errors import ConfigError, StorageUnavailable
from perdure.pipeline import offsets
from perdure.pipeline.address import Remote
from perdure.pipeline.conditions import Narrowing
from perdure.pipeline.log_index import LogIndex, ask, opened
from perdure.pipeline.options import ReadOptions
from perdure.pipeline.remote import fetch_cursors, send_cursor
from perdure.storage.batch import Batch
from perdure.storage.cursors import PipelineCursor, load_cursors
from perdure.storage.notes import LOG_IDENTITY
from tests.unit.pipeline.logs import SECOND, START, append, open_log
from tests.unit.web.asgi import TOKEN
from tests.unit.web.child import WebProcess

pytest.importorskip("uvicorn")
pytest.importorskip("pyarrow")
from perdure.pipeline import log_source

TOPICS = [f"d/{n % 7}/{n % 3}" for n in range(3_000)]
NEWER = ["d/late"] * 20
LATER = START + 200 * SECOND
IDENTITY = "a" * 32


def node(path: Path, *, cuts: int, newer: int = len(NEWER)) -> Path:
    """A node's directory, with so many generations more than one."""
    database = open_log(path)
    database.apply(Batch(), [(LOG_IDENTITY, IDENTITY.encode())])
    step = len(TOPICS) // (cuts + 1)
    for at in range(0, len(TOPICS), step):
        if at:
            database.rotate(START + at * 1_000 - 1)
        payloads = [b"%d" % number for number in range(at, at + step)]
        append(database, TOPICS[at : at + step], at=START + at * 1_000, payloads=payloads)
    append(database, NEWER[:newer], at=LATER)
    database.close()
    return path


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Two nodes, and one that is behind."""
    home = tmp_path_factory.mktemp("nodes")
    return (
        node(home / "one" / "db", cuts=0),
        node(home / "two" / "db", cuts=3),
        node(home / "behind" / "db", cuts=2, newer=5),
    )


@pytest.fixture(scope="module")
def nodes(directories: tuple[Path, Path, Path]) -> Iterator[list[str]]:
    """Where they are."""
    with (
        WebProcess(directories[0], page_bytes=16 * 1024) as one,
        WebProcess(directories[1]) as two,
        WebProcess(directories[2]) as behind,
    ):
        yield [one.url, two.url, behind.url]


def of(*urls: str, wait_s: float = 0) -> ReadOptions:
    """What is read, from the first of these nodes that can."""
    remote = Remote(urls[0], token=TOKEN, wait_s=wait_s, others=urls[1:])
    return ReadOptions("", rows_per_partition=2_000, remote=remote)


def planned(options: ReadOptions) -> list[log_source.Part]:
    """The parts as they come to workers."""
    with opened(options) as index:
        parts = log_source.plan(index, options, Narrowing())
    return pickle.loads(pickle.dumps(parts))  # type: ignore[no-any-return]


def read(parts: list[log_source.Part], columns: list[str]) -> list[dict[str, Any]]:
    """Their rows, in the log's order."""
    rows = [
        row
        for part in parts
        for batch in log_source.read(part, columns)
        for row in batch.to_pylist()
    ]
    return sorted(rows, key=lambda row: int(row.get("offset", 0)))


COLUMNS = ["topic", "payload", "offset"]


def test_nodes_are_one_log(nodes: list[str], directories: tuple[Path, Path, Path]) -> None:
    for directory in directories:
        with opened(ReadOptions(str(directory))) as index:
            assert index.database_id == IDENTITY
    rows = read(planned(of(nodes[0])), COLUMNS)
    assert len(rows) == len(TOPICS) + len(NEWER)
    assert read(planned(of(nodes[1])), COLUMNS) == rows


def failing_after(
    monkeypatch: pytest.MonkeyPatch, url: str, batches: int
) -> Callable[[], list[str]]:
    """A node that dies behind so many batches; tells who was asked."""
    real, asked = log_source.read_rows, []

    def read_rows(remote: Remote, *arguments: Any, **others: Any) -> Iterator[Any]:
        asked.append(remote.url)
        for number, batch in enumerate(real(remote, *arguments, **others)):
            if remote.url == url and number == batches:
                break
            yield batch
        else:
            if remote.url != url:
                return
        raise StorageUnavailable(f"{url} is gone")

    monkeypatch.setattr(log_source, "read_rows", read_rows)
    return lambda: asked


@pytest.mark.parametrize("batches", [0, 1, 3])
@pytest.mark.parametrize("columns", [COLUMNS, ["payload"]])
def test_a_node_that_dies_is_gone_on_for_by_another(
    nodes: list[str], monkeypatch: pytest.MonkeyPatch, batches: int, columns: list[str]
) -> None:
    one, two, _ = nodes
    expected = read(planned(of(one)), columns)
    parts = planned(of(one, two))
    asked = failing_after(monkeypatch, one, batches)
    found = read(parts, columns)
    key = str
    assert sorted(map(key, found)) == sorted(map(key, expected)), "each row once"
    assert all(set(row) == set(columns) for row in found)
    assert set(asked()) == {one, two}


def test_a_node_that_is_behind_does_not_go_on(
    nodes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it lacks would be missing, and nobody would see it."""
    one, two, behind = nodes
    parts = planned(of(one, behind))
    failing_after(monkeypatch, one, 0)
    with pytest.raises(StorageUnavailable, match="has not come to offset"):
        read(parts, COLUMNS)
    parts = planned(of(one, behind, two))
    assert len(read(parts, COLUMNS)) == len(TOPICS) + len(NEWER)


def test_what_was_seen_on_one_node_is_not_planned_on_one_behind_it(nodes: list[str]) -> None:
    one, two, behind = nodes
    end = LATER + (len(NEWER) - 1) * 1_000
    whole = msgspec.structs.replace(of(behind, one).between(0, end), whole=True)
    with pytest.raises(StorageUnavailable, match="has come to offset"):
        planned(whole)

    patient = whole.at(Remote(behind, token=TOKEN, wait_s=30, others=(two,)))

    def plan(files: LogIndex) -> list[log_source.Part]:
        return log_source.plan(files, patient, Narrowing())

    assert sum(each.estimate for part in ask(patient, plan) for each in part.slices)


def test_a_question_goes_to_the_next_node_when_one_dies(nodes: list[str]) -> None:
    one, two, _ = nodes
    asked: list[str] = []

    def question(index: LogIndex) -> str:
        url = index.remote.url  # type: ignore[attr-defined]
        asked.append(url)
        if len(asked) == 1:
            raise StorageUnavailable("it has gone")
        return str(url)

    assert ask(of(one, two, wait_s=30), question) == two
    assert asked == [one, two]


def test_a_gap_is_seen_whatever_the_generations_are_called(
    directories: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    """A position of a node that counts more of them than the one that has dropped some."""
    database = open_log(tmp_path / "db")
    database.apply(Batch(), [(LOG_IDENTITY, IDENTITY.encode())])
    append(database, TOPICS[:10], at=START)
    database.rotate(LATER)
    append(database, TOPICS[:10], at=LATER)
    database.drop_generation(1)
    options = ReadOptions(str(tmp_path / "db"))
    with opened(options) as index:
        with pytest.raises(ConfigError, match="were dropped"):
            offsets.check(index, offsets.position(IDENTITY, 7, START), options)
        offsets.check(index, offsets.position(IDENTITY, 7, LATER), options)
    database.close()


def test_each_node_learns_how_far_a_pipeline_has_read(
    nodes: list[str], directories: tuple[Path, Path, Path]
) -> None:
    """Each has a retention of its own, which waits for it; who is away learns it later."""
    remote = Remote("http://127.0.0.1:1", token=TOKEN, wait_s=0, others=tuple(nodes))
    send_cursor(remote, PipelineCursor("archive", "lake", IDENTITY, 7, START))
    for directory in directories:
        assert [each.offset for each in load_cursors(directory)[0]] == [7]
    assert [each.offset for each in fetch_cursors(remote).items] == [7]
    with pytest.raises(StorageUnavailable):
        send_cursor(
            Remote("http://127.0.0.1:1", wait_s=0),
            PipelineCursor("archive", "lake", IDENTITY, 8, START),
        )
