"""What a bulk read costs, and how it is cut into parts of about equal cost.

A cost is counted in **rows read as they lie**. One that is picked out through the index costs as
much as ``PICKED_COST`` of them, so a hundredth of a log that is picked out is a tenth of the work:
worth more than one core, which it would not get if rows were what counts.

How many rows a plan picks out is not known without reading the index; a few of its constraints are
tried, and a few entries of each. Invariant: an estimate decides where a range is cut and nothing
else; the slices of a range always cover it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import Final

import msgspec

from perdure.storage.rocksdb.generations import Generation
from perdure.storage.rocksdb.layout_v1 import SkipScanLayout
from perdure.storage.rocksdb.layout_v1_scan import Constraints, Plan

PICKED_COST: Final = 8
"""Measured: 4.5 microseconds for a row through the index, 0.6 for one of a page."""

PART_COST_MIN: Final = 32_768
"""Less than this is not worth a part of its own: reading it takes as long as starting one."""

PARTS_WANTED: Final = 4
"""Parts of a read that is small, but large enough to be worth more than one core."""

_PACKED_SLACK: Final = 4
"""A part may be larger by one of as many parts, rather than leave a small one over."""

_WHOLE_STREAMS_MAX: Final = 16
_COUNTED_PART: Final = 8
"""A part's share of rows that streams of single topics may have beside constrained ones."""

_CONSTRAINTS_PER_SHARE: Final = 8
"""With fewer, one that many rows fulfil would make a slice much larger than the others."""

_SAMPLES_MAX: Final = 32
_SAMPLES_PER_STREAM: Final = 4
_SAMPLE_ROWS_MAX: Final = 64


class Slice(msgspec.Struct, frozen=True):
    """A range of offsets within one generation.

    Attributes:
        generation: its number.
        after_offset: exclusive.
        until_offset: inclusive.
        estimate: what reading it costs, about, in rows read as they lie.
        share: which share of the range's constraints, from 0; of ``shares``.
        shares: how many slices have the same range, each with other constraints.
    """

    generation: int
    after_offset: int
    until_offset: int
    estimate: int
    share: int = 0
    shares: int = 1


def cut(
    generation: Generation,
    layout: SkipScanLayout,
    plan: Plan,
    after: int,
    until: int,
    *,
    rows_max: int,
    shares: bool = False,
) -> Iterator[Slice]:
    """Slices of one generation that cost ``rows_max`` at most, about: at its sparse counts, or
    with ``shares`` by constraints where that is possible, because each constraint costs a seek in
    every slice that looks for it."""
    header, offsets, counts = generation.header, generation.offsets, generation.counts
    after = max(after, header.since_offset - 1)
    if header.until_offset:
        until = min(until, header.until_offset - 1)
    start = bisect_right(offsets, after)
    stop = bisect_right(offsets, until)
    low = counts[start - 1] if start else 0
    high = counts[stop] if stop < len(counts) else generation.message_count
    count = max(high - low, 1)
    cost = count
    if offsets and count > min(PART_COST_MIN, rows_max):
        # Where messages are, about: few follow the last point, and none is from before the begin.
        first = max(after, min(header.created_at_us, offsets[0]))
        last = min(until, offsets[-1])
        cost = min(cost, picked_cost(layout, plan, first, last, rows_max=rows_max, count=count))
    parts = -(-cost // rows_max)
    if cost < count:
        parts = max(parts, _parts_wanted(cost))
        if shares and parts > 1 and _has_shares(layout, plan, parts):
            for share in range(parts):
                estimate = cost // parts + 1
                yield Slice(header.generation, after, until, estimate, share, parts)
            return
    bounds = [after]
    for part in range(1, parts):
        at = bisect_left(counts, low + count * part // parts)
        if at < len(offsets) and bounds[-1] < offsets[at] < until:
            bounds.append(offsets[at])
    bounds.append(until)
    estimate = cost // (len(bounds) - 1) + 1
    for first, last in pairwise(bounds):
        if first < last:
            yield Slice(header.generation, first, last, estimate)


def _has_shares(layout: SkipScanLayout, plan: Plan, shares: int) -> bool:
    """Whether each row fulfils one constraint at most, and there are enough of them to deal out."""
    dealt = 0
    for stream, constraints in plan.items():
        if constraints is not None:
            if not layout.is_picked(stream, constraints):
                return False
            dealt += len(constraints)
    return dealt >= shares * _CONSTRAINTS_PER_SHARE


def share_of(plan: Plan, part: Slice) -> Plan:
    """What of a plan a slice reads: every so many constraints, and whole streams in turn."""
    if part.shares == 1:
        return plan
    found: Plan = {}
    for stream, constraints in plan.items():
        if constraints is None:
            if stream % part.shares == part.share:
                found[stream] = None
        elif dealt := sorted(constraints)[part.share :: part.shares]:
            found[stream] = set(dealt)
    return found


def picked_cost(
    layout: SkipScanLayout, plan: Plan, after: int, until: int, *, rows_max: int, count: int
) -> int:
    """What reading a plan in a range costs, about; ``count``, all there is, if it may be all.

    A stream that is read as a whole may hold most of the log. Those of single topics, from before
    their level was learned, rarely do: they are counted, up to a bound.
    """
    whole = [stream for stream, constraints in plan.items() if constraints is None]
    if len(whole) == len(plan) or len(whole) > _WHOLE_STREAMS_MAX:
        return count
    counted = left = max(rows_max // _COUNTED_PART, 1)
    for stream in whole:
        if "+" in layout.pattern(stream).split("/"):
            return count
        left -= layout.stream_messages(stream, None, after, until, left)
        if left <= 0:
            return count
    picked = {stream: each for stream, each in plan.items() if each is not None}
    return counted - left + PICKED_COST * _sampled(layout, picked, after, until)


def _sampled(
    layout: SkipScanLayout, plan: dict[int, set[Constraints]], after: int, until: int
) -> int:
    """About how many rows fulfil constraints, from a few of them."""
    tried = 0
    rows = 0.0
    wanted = 0
    for stream, constraints in plan.items():
        wanted += len(constraints)
        if tried >= _SAMPLES_MAX:
            continue
        every = max(len(constraints) // _SAMPLES_PER_STREAM, 1)
        for each in islice(sorted(constraints), 0, every * _SAMPLES_PER_STREAM, every):
            offsets = layout.scanner.entries(stream, each, after, until, _SAMPLE_ROWS_MAX)
            tried += 1
            rows += len(offsets)
            if len(offsets) == _SAMPLE_ROWS_MAX:
                # As dense as that to the end.
                rows += len(offsets) * (until - offsets[-1]) / max(offsets[-1] - after, 1)
    return int(rows * wanted / max(tried, 1)) + 1


def _parts_wanted(cost: int) -> int:
    return min(max(cost // PART_COST_MIN, 1), PARTS_WANTED)


def pack_slices(slices: Sequence[Slice], *, rows_max: int) -> list[tuple[Slice, ...]]:
    """Neighbouring slices together, so that each group costs ``rows_max`` at most, about, and
    a few of them can be read at once."""
    total = sum(part.estimate for part in slices)
    fair = -(-total // _parts_wanted(total))
    group_max = min(rows_max, fair + fair // _PACKED_SLACK)
    groups: list[tuple[Slice, ...]] = []
    group: list[Slice] = []
    cost = 0
    for part in slices:
        if group and cost + part.estimate > group_max:
            groups.append(tuple(group))
            group, cost = [], 0
        group.append(part)
        cost += part.estimate
    if group:
        groups.append(tuple(group))
    return groups
