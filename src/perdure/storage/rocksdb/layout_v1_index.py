"""Looks after the index of layouts 1 and 4: whether rows and entries agree, and what makes them.

The keys are drawn in ``layout_v1``. What puts entries between those of others, or takes some away,
makes single ones of a run that it is in, so that none begins before the one before it has ended.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias, final

from perdure.errors import StorageCorrupt
from perdure.storage.bundle import decode_row
from perdure.storage.contract import Finding
from perdure.storage.rocksdb.engine import Engine, Operations, prefix_end
from perdure.storage.rocksdb.layout_v1_keys import (
    INDEX_OFFSET_AT,
    RUN_SPAN,
    end_of,
    overlapping,
    pack_offset,
    run_of,
    token_hash,
    tokens_of,
    unpack_data,
)

Parts: TypeAlias = tuple[bytes, bytes, tuple[bytes, ...]]
"""Of a topic: its stream, packed; its varying tokens; what its index entries begin with."""

_RUNS_MAX: Final = 65_536
"""Runs that are kept while rows are checked, one for each token."""


@final
class IndexEntries:
    """The index of one generation.

    Args:
        engine: gives the open engine.
        data, index: names of its tables.
        topic: of a data key.
        parts: of a topic.
    """

    def __init__(
        self,
        engine: Callable[[], Engine],
        data: str,
        index: str,
        topic: Callable[[bytes], str],
        parts: Callable[[str], Parts],
    ) -> None:
        self._engine = engine
        self._data = data
        self._index = index
        self._topic = topic
        self._parts = parts

    def check(self, *, since_offset: int, until_offset: int) -> Iterator[Finding | int]:
        """As ``layout.Layout`` has it."""
        messages = 0
        engine = self._engine()
        runs: dict[bytes, tuple[int, ...]] = {}
        for key, value in engine.items(self._data, b"", pack_offset(2**64 - 1)):
            try:
                topic, offset = self._topic(key), unpack_data(key)[1]
                found = decode_row(topic, offset, value, -1, offset)
                expected = self._parts(topic)
            except (StorageCorrupt, struct.error) as error:
                messages += 1
                yield Finding(self._data, key.hex(), str(error))
                continue
            messages += len(found)
            at = pack_offset(offset)
            if not since_offset <= found[0].offset <= offset < until_offset:
                yield Finding(self._data, key.hex(), "a message of another generation")
            if expected[0] + at + expected[1] != key:
                yield Finding(self._data, key.hex(), f"{topic!r} belongs to another stream")
                continue
            for prefix in expected[2]:
                run = runs.get(prefix)
                if run is None or not run[0] <= offset <= run[-1]:
                    run = self._run_at(engine, prefix, offset)
                    if len(runs) >= _RUNS_MAX:
                        runs.clear()
                    runs[prefix] = run
                if offset not in run:
                    yield Finding(self._data, key.hex(), "a varying level has no index entry")
        before, last = b"", -1
        for key, value in engine.items(self._index, b"", pack_offset(2**64 - 1)):
            try:
                run = run_of(key, value)
                if key[:INDEX_OFFSET_AT] == before and run[0] <= last:
                    raise overlapping(key)
                before, last = key[:INDEX_OFFSET_AT], run[-1]
                problem = self._run_problem(engine, key, run)
            except StorageCorrupt as error:
                problem = str(error)
            if problem:
                yield Finding(self._index, key.hex(), problem)
        yield messages

    def _run_at(self, engine: Engine, prefix: bytes, offset: int) -> tuple[int, ...]:
        """The run of the first index entry of a token at or behind an offset, as far as one that
        holds it can be; none of it, but a number that is no offset, where it is damaged."""
        first, end = prefix + pack_offset(offset), end_of(prefix, offset + RUN_SPAN)
        for key, value in engine.items(self._index, first, end):
            try:
                return run_of(key, value)
            except StorageCorrupt:
                break
        return (-1,)

    def of_row(self, key: bytes) -> Operations:
        """The index entries of the row with a data key, as operations."""
        at = pack_offset(unpack_data(key)[1])
        operations: Operations = []
        for prefix in self._parts(self._topic(key))[2]:
            operations += (self._index, prefix + at, b"")
        return operations

    def mended(self, key: bytes) -> Operations:
        """Operations that put the row with a data key, which is not in the index, there.

        An entry whose run it lies in becomes single ones, which is the same result for whichever
        rows it is done. One that is damaged stays: it is a finding of its own, and is deleted.
        """
        engine, offset = self._engine(), unpack_data(key)[1]
        operations: Operations = []
        for prefix in self._parts(self._topic(key))[2]:
            run = self._run_at(engine, prefix, offset)
            if offset in run:
                continue
            entry = prefix + pack_offset(offset)
            if engine.get(self._index, entry) is None:
                operations += (self._index, entry, b"")
            if run[0] < offset < run[-1]:
                for each in run:
                    operations += (self._index, prefix + pack_offset(each), b"")
        return operations

    def cut(self, key: bytes, at: int) -> Operations:
        """Operations that delete the index entries found at the row with a data key, which is
        behind the offset ``at``; rows up to there that they stand for too get single ones.

        Raises:
            StorageCorrupt: such an entry is damaged.
        """
        engine, offset = self._engine(), unpack_data(key)[1]
        operations: Operations = []
        for prefix in self._parts(self._topic(key))[2]:
            entry = prefix + pack_offset(offset)
            value = engine.get(self._index, entry)
            operations += (self._index, entry, None)
            if value:
                for each in run_of(entry, value):
                    if each <= at:
                        operations += (self._index, prefix + pack_offset(each), b"")
        return operations

    def _run_problem(self, engine: Engine, key: bytes, run: tuple[int, ...]) -> str:
        """What is wrong with the rows that an index entry stands for; empty = nothing."""
        level = key[8]
        for offset in run:
            head = key[:8] + pack_offset(offset)
            row = next(engine.keys(self._data, head, prefix_end(head)), None)
            if row is None:
                return "an index entry has no message"
            tokens = tokens_of(row)
            if level >= len(tokens) or token_hash(tokens[level]) != key[9:INDEX_OFFSET_AT]:
                return "an index entry belongs to another token"
        return ""
