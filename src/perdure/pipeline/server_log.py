"""The log of a broker that keeps its state in a server, in bulk; read beside it.

The broker's HTTP process opens it, so that readers elsewhere need neither the server's address nor
its password. It claims nothing and writes nothing. What it sees is what was there when it was
opened.

A block of the log has topics and messages in the bytes that layout 1 has too, so that its rows
become pages of one stream with a single level that varies: the topic. There is no index by topic:
a read fetches all blocks of its range and tries the filters on each topic once.

Invariant: as ``LogFiles``: each recorded message of a slice that is wanted comes once, by offset.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, final

from perdure.config.backends import load
from perdure.config.schema import StorageConfig
from perdure.errors import FormatTooNew, StorageCorrupt, StorageUnavailable
from perdure.storage.contract import GenerationInfo
from perdure.storage.remote import rows
from perdure.storage.remote.driver import IDENTITY_FILE, LOG, META, Looks
from perdure.storage.remote.log import (
    PAGE_ROWS_MAX,
    PAGE_ROWS_MIN,
    Generation,
    following_limit,
    parse_generations,
)
from perdure.storage.remote.loops import DriverLoop
from perdure.storage.rocksdb.bulk import PAGE_BYTES_MAX, FilterSets, Position
from perdure.storage.rocksdb.bulk_slices import Slice
from perdure.storage.rocksdb.page import Page, PageBuilder
from perdure.topic.matching import compile_filter

_STREAM: Final = bytes(8)
_KEY_HEAD: Final = 16
_ALL: Final = 1 << 31
_TOPICS_MAX: Final = 100_000
"""Topics whose match is remembered."""


@final
class TopicLayout:
    """What a generation of blocks knows of its topics: nothing was learned."""

    def topic(self, key: bytes) -> str:
        """The topic of a key."""
        try:
            return key[_KEY_HEAD:].decode()
        except UnicodeDecodeError as error:
            raise StorageCorrupt(f"key {key.hex()} is not UTF-8") from error

    def pattern(self, _stream: int) -> str:
        """All of a topic varies."""
        return "+"

    def streams(self) -> list[tuple[int, str]]:
        """None was learned."""
        return []


@final
class ServerLog:
    """The log in a server, as it is now; ``LogFiles`` says what each method means.

    Args:
        driver: not connected; closed with this.
        database_id: what tells this database from every other.

    Raises:
        StorageUnavailable: the server cannot be reached, or no broker keeps its state there.
        FormatTooNew: a later release wrote it.
    """

    def __init__(self, driver: Looks, database_id: str) -> None:
        self._loop = DriverLoop()
        self._driver = driver
        self._database_id = database_id
        self._generations: dict[int, Generation] = {}
        self._newest: Position | None = None
        try:
            self._loop.wait(self._open())
        except BaseException:
            self.close()
            raise

    async def _open(self) -> None:
        driver = self._driver
        found = None
        if await driver.look():
            (found,) = await driver.get([(META, rows.NOBODY, rows.FORMAT_KEY)])
        if found is None:
            raise StorageUnavailable("no broker keeps its state in this server")
        if found > rows.FORMAT:
            raise FormatTooNew("the state was written by a later release")
        meta = await driver.scan(META, rows.NOBODY, start=b"", end=b"", limit=_ALL)
        self._generations = parse_generations(meta)
        for number in sorted(self._generations, reverse=True):
            last = await self._last(number)
            if last:
                self._newest = Position(number, last)
                return

    async def _last(self, number: int) -> int:
        """The last offset of a generation; 0 = it is empty. What is counted last may be written
        by the broker only now, so it is looked for in the blocks themselves."""
        offsets = self._generations[number].offsets
        owner, start, last = rows.generation_owner(number), rows.number(0), 0
        if offsets:
            start = rows.number(offsets[-1])
        while True:
            page = await self._driver.scan(
                LOG, owner, start=start, end=b"", limit=PAGE_ROWS_MAX, names_only=True
            )
            if page:
                last = rows.parse_number(page[-1][0])
                start = page[-1][0] + b"\0"
            if len(page) < PAGE_ROWS_MAX:
                return last

    def close(self) -> None:
        """Let go of the server."""
        try:
            self._loop.wait(self._driver.close())
        finally:
            self._loop.close()

    @property
    def database_id(self) -> str:
        """See ``LogFiles``."""
        return self._database_id

    def generations(self) -> list[GenerationInfo]:
        """See ``LogFiles``."""
        return [each.info() for each in self._generations.values()]

    def newest(self) -> Position | None:
        """See ``LogFiles``."""
        return self._newest

    def layout(self, generation: int) -> TopicLayout:
        """See ``LogFiles``."""
        self._generation(generation)
        return TopicLayout()

    def patterns(self, generation: int) -> list[str]:
        """See ``LogFiles``; none is learned."""
        self._generation(generation)
        return []

    def slices(
        self, filter_sets: FilterSets, after_offset: int, until_offset: int, *, rows_max: int
    ) -> list[Slice]:
        """See ``LogFiles``. Whatever is wanted, all of a range has to be fetched."""
        found: list[Slice] = []
        for number, after, until in self._ranges(after_offset, until_offset):
            each = self._generations[number]
            start, stop = bisect_right(each.offsets, after), bisect_right(each.offsets, until)
            low = each.counts[start - 1] if start else 0
            high = each.counts[stop] if stop < len(each.counts) else each.messages
            count = max(high - low, 1)
            parts = -(-count // rows_max)
            bounds = [after]
            for part in range(1, parts):
                at = bisect_left(each.counts, low + count * part // parts)
                if at < len(each.offsets) and bounds[-1] < each.offsets[at] < until:
                    bounds.append(each.offsets[at])
            bounds.append(until)
            estimate = count // (len(bounds) - 1) + 1
            found += [Slice(number, first, last, estimate) for first, last in pairwise(bounds)]
        return found

    def bound(self, filter_sets: FilterSets, after: int, until: int, rows_max: int) -> int:
        """See ``LogFiles``."""
        left = max(rows_max, 1)
        wanted = _Wanted(filter_sets)
        for number, low, high in self._ranges(after, until):
            last = 0
            for offset, topic, _ in self._rows(number, low, high):
                if not wanted(topic):
                    continue
                if not left:
                    return last
                left, last = left - 1, offset
            if not left:
                return last or high
        return until

    def pages(
        self,
        filter_sets: FilterSets,
        part: Slice,
        *,
        rows_max: int,
        bytes_max: int = PAGE_BYTES_MAX,
    ) -> Iterator[Page]:
        """See ``LogFiles``."""
        wanted = _Wanted(filter_sets)
        page = PageBuilder()
        for offset, topic, message in self._rows(
            part.generation, part.after_offset, part.until_offset
        ):
            if not wanted(topic):
                continue
            page.add([_STREAM + rows.number(offset) + topic, message])
            if page.rows >= rows_max or page.size >= bytes_max:
                yield page.take()
        if page.rows:
            yield page.take()

    def _generation(self, number: int) -> Generation:
        found = self._generations.get(number)
        if found is None:
            raise StorageUnavailable(
                f"generation {number} was dropped while it was to be read",
                hint="its messages had reached the end of storage retention",
            )
        return found

    def _ranges(self, after: int, until: int) -> Iterator[tuple[int, int, int]]:
        """What of a range is in which generation."""
        for number, each in self._generations.items():
            within = each.within(after, until)
            if within is not None:
                yield number, *within

    def _rows(self, number: int, low: int, high: int) -> Iterator[tuple[int, bytes, bytes]]:
        """Offset, topic and message of all of a generation in ``(low, high]``."""
        self._generation(number)
        owner, start, limit = rows.generation_owner(number), rows.number(low + 1), PAGE_ROWS_MIN
        passed = False
        while not passed:
            page = self._loop.wait(self._driver.scan(LOG, owner, start=start, end=b"", limit=limit))
            for _, block in page:
                for row in rows.block_rows(block):
                    passed = row[0] > high
                    if passed:
                        break
                    if row[0] > low:
                        yield row
            if len(page) < limit:
                break
            start = page[-1][0] + b"\0"
            limit = following_limit(limit, page)
        self._check_there(number)

    def _check_there(self, number: int) -> None:
        """A generation that was dropped while its blocks were fetched would end early."""
        key = rows.header_key(number)
        (header,) = self._loop.wait(self._driver.get([(META, rows.NOBODY, key)]))
        if header is None:
            raise StorageUnavailable(
                f"generation {number} was dropped while it was read",
                hint="its messages had reached the end of storage retention",
            )


@final
class _Wanted:
    """Whether a topic matches a filter of each set."""

    def __init__(self, filter_sets: FilterSets) -> None:
        self._sets = [[compile_filter(each) for each in filters] for filters in filter_sets]
        self._known: dict[bytes, bool] = {}

    def __call__(self, topic: bytes) -> bool:
        if not self._sets:
            return True
        found = self._known.get(topic)
        if found is None:
            if len(self._known) >= _TOPICS_MAX:
                self._known.clear()
            name = topic.decode(errors="replace")
            found = all(any(each.matches(name) for each in one) for one in self._sets)
            self._known[topic] = found
        return found


def open_server_log(storage: StorageConfig, directory: Path) -> ServerLog:
    """The log of the broker with this configuration.

    Args:
        storage: with a backend in a server.
        directory: the broker's data directory, which has its identity.

    Raises:
        StorageUnavailable: see ``ServerLog``.
        ConfigError: the URL is wrong, or the extra is not installed.
    """
    try:
        identity = (directory / IDENTITY_FILE).read_text(encoding="ascii").strip()
    except OSError as error:
        raise StorageUnavailable(f"{directory} was never used by a broker") from error
    kind = load(storage.backend, storage.traits.driver)
    driver: Looks = kind.configured(storage.server, identity)
    return ServerLog(driver, identity)
