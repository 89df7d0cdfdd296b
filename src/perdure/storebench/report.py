"""What a comparison of stores says: rows, ratios, what is comparable, and a page with charts."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, Final

from perdure.bench.page import STYLE
from perdure.bench.plot import Bar, bars
from perdure.storebench.contestants import BY_NAME
from perdure.storebench.run import SEED, Comparison, Ratio, Row

ROW_FIELDS: Final = (
    "durability",
    "shape",
    "contestant",
    "cycles_per_s",
    "low",
    "high",
    "cycle_p50_ms",
    "cycle_p99_ms",
    "persist_p50_ms",
    "persist_p99_ms",
    "server_cpu_us",
    "client_cpu_us",
)
RATIO_FIELDS: Final = ("what", "ratio", "low", "high", "wanted", "kept")
MEMORY_FIELDS: Final = ("contestant", "bytes_each", "where")
_WHERE: Final = {
    "redis": "memory of the server",
    "postgres": "tables and indexes on disk",
    "embedded": "files, the log not yet sorted among them",
}

NOTES: Final = (
    (
        "A cycle is a message persisted, fetched and acknowledged: three calls. TBMQ counts "
        "messages in and out of a whole broker, so only ratios can be held against its figures, "
        "and those only with care."
    ),
    (
        "Comparable: contestants of one durability and one shape, in the same rounds. Not "
        "comparable: durable with relaxed, single with batched, figures of different machines."
    ),
    (
        "Single: one message to a call, 128 calls under way, but redis-sync waits for each "
        "reply, so that its 128 callers take turns. Batched: 128 messages to a call, 4 calls "
        "under way."
    ),
    (
        "In the single shape every call has futures and task switches of its own in the client, "
        "the same for every layout: what a layout saves is a smaller part of the whole there."
    ),
    (
        "redis-sync is redis-py, and shares one interpreter with everything else. Jedis with a "
        "pool of threads is faster: asynchronous against synchronous is larger here than in "
        "TBMQ."
    ),
    (
        "postgres-batched gathers the requests of all callers into transactions also in the "
        "single shape: that is batching, whatever a call carries."
    ),
    (
        "Client, servers and their disk share this machine's cores: a server that leaves the "
        "client less CPU looks slower than it is. Where other programs run beside, trust CPU "
        "for a cycle before cycles per second."
    ),
    (
        "redis-async and compact send a call's commands together and wait on one future. "
        "PostgreSQL is asked client by client, and its pool gathers the requests: some "
        "microseconds of client CPU."
    ),
    (
        "The embedded log records a message once and moves a cursor; the others keep a queue "
        "for each client. Its bytes are on disk, those of Redis in memory."
    ),
)


def row_fields(found: Comparison) -> Iterator[dict[str, Any]]:
    """The rows of the table."""
    for row in found.rows:
        median, low, high = row.spread()

        def middle(values: Sequence[float]) -> float:
            return round(statistics.median(values), 3)

        server = [one.server_cpu_us for one in row.stretches if one.server_cpu_us is not None]
        yield {
            "durability": row.durability,
            "shape": row.shape,
            "contestant": row.contestant,
            "cycles_per_s": round(median),
            "low": round(low),
            "high": round(high),
            "cycle_p50_ms": middle([one.cycle_ms[0] for one in row.stretches]),
            "cycle_p99_ms": middle([one.cycle_ms[1] for one in row.stretches]),
            "persist_p50_ms": middle([one.persist_ms[0] for one in row.stretches]),
            "persist_p99_ms": middle([one.persist_ms[1] for one in row.stretches]),
            "server_cpu_us": round(statistics.median(server), 1) if server else None,
            "client_cpu_us": round(
                statistics.median([one.client_cpu_us for one in row.stretches]), 1
            ),
        }


def ratio_fields(ratios: Sequence[Ratio]) -> Iterator[dict[str, Any]]:
    """The rows of the table of ratios."""
    for ratio in ratios:
        bound = ""
        if ratio.wanted:
            bound = f"{'<=' if ratio.is_most else '>='} {ratio.wanted:.3g}"
        yield {
            "what": ratio.what,
            "ratio": float(f"{ratio.found:.3g}"),
            "low": float(f"{ratio.low:.3g}"),
            "high": float(f"{ratio.high:.3g}"),
            "wanted": bound,
            "kept": ("yes" if ratio.is_met else "no") if bound else "",
        }


def memory_fields(found: Comparison) -> Iterator[dict[str, Any]]:
    """The rows of the table of sizes."""
    for name, value in found.memory.items():
        yield {
            "contestant": name,
            "bytes_each": round(value),
            "where": _WHERE[BY_NAME[name].server],
        }


def seed_bars(found: Comparison) -> list[tuple[str, list[Bar]]]:
    """For each durability: single messages as multiples of redis-sync, beside TBMQ's own."""
    charts = []
    base = SEED["redis-sync"]
    for durability in dict.fromkeys(row.durability for row in found.rows):
        rows = [r for r in found.rows if r.durability == durability and r.shape == "single"]
        sync = next((row for row in rows if row.contestant == "redis-sync"), None)
        if sync is None:
            continue
        entries = [
            Bar(f"TBMQ: {name}", rate / base, rate / base, rate / base, f"{rate / base:.2f}", 5)
            for name, rate in SEED.items()
        ]
        entries += [_bar(row, sync) for row in rows]
        charts.append((durability, entries))
    return charts


def _bar(row: Row, sync: Row) -> Bar:
    values = [
        one.cycles_per_s / other.cycles_per_s
        for one, other in zip(row.stretches, sync.stretches, strict=True)
    ]
    median = statistics.median(values)
    return Bar(row.contestant, median, min(values), max(values), f"{median:.2f}", 0)


def render(found: Comparison) -> str:
    """The page, one HTML file."""
    machine = found.machine
    parts = [
        "<h1>What it costs to keep messages for clients</h1>",
        (
            f"<p>{escape(found.started_at)}, {escape(machine.cpu)}, {machine.cores} cores, "
            f"{escape(machine.python)}, Perdure {escape(machine.perdure)}, "
            f"{escape(machine.kernel)}, data on {escape(machine.disk)}. "
            f"{found.settings.clients:,} clients, "
            f"{found.settings.payload_bytes} B, {found.settings.rounds} interleaved rounds of "
            f"{found.settings.seconds:g} s.</p>"
        ),
        '<div class="plots">',
        *(
            bars(f"{durability}, single: x redis-sync, beside TBMQ's 30k : 40k : 60k", entries)
            for durability, entries in seed_bars(found)
        ),
        *(bars(title, entries) for title, entries in _rate_bars(found)),
        "</div>",
        "<h2>Ratios</h2>",
        _table(RATIO_FIELDS, list(ratio_fields(found.ratios))),
        "<h2>All figures</h2>",
        _table(ROW_FIELDS, list(row_fields(found))),
        f"<h2>Bytes of a message, {found.settings.queued} queued for each client</h2>",
        _table(MEMORY_FIELDS, list(memory_fields(found))),
        "<h2>How to read this</h2>",
        "<ul>",
        *(f"<li>{escape(note)}</li>" for note in NOTES),
        "</ul>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>Perdure: persistence</title>'
        f"<style>{STYLE}</style></head>\n<body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def _rate_bars(found: Comparison) -> Iterator[tuple[str, list[Bar]]]:
    for durability in dict.fromkeys(row.durability for row in found.rows):
        for shape in dict.fromkeys(row.shape for row in found.rows):
            entries = []
            for row in found.rows:
                if (row.durability, row.shape) == (durability, shape):
                    median, low, high = row.spread()
                    entries.append(Bar(row.contestant, median, low, high, f"{median:,.0f}/s", 1))
            yield f"{durability}, {shape}: cycles per second", entries


def _table(fields: Sequence[str], rows: Sequence[dict[str, Any]]) -> str:
    head = "".join(f"<th>{escape(field)}</th>" for field in fields)
    body = "".join(
        "<tr>"
        + "".join(
            f"<td>{escape('' if row[field] is None else str(row[field]))}</td>" for field in fields
        )
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'
