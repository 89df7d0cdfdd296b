"""What a database takes up from its server before it writes: owners, subscriptions, names of
retained topics, counters and the ends of queues, which memory holds from then on.
"""

from __future__ import annotations

from perdure.errors import FormatTooNew
from perdure.storage.codec import decode_session, decode_subscription
from perdure.storage.remote import rows
from perdure.storage.remote.driver import CLIENTS, META, RETAINED, ROWS, Driver
from perdure.storage.remote.log import RemoteLog
from perdure.storage.remote.reader import pages
from perdure.storage.remote.writer import Writer


async def load(driver: Driver, writer: Writer, log: RemoteLog) -> int:
    """Fill the writer and the log; returns the last offset that was allocated.

    Raises:
        FormatTooNew: a later release wrote the state.
        StorageError: it cannot be read.
    """
    meta = await driver.scan(META, rows.NOBODY, start=b"", end=b"", limit=1 << 31)
    stored = dict(meta)
    version = stored.get(rows.FORMAT_KEY, rows.FORMAT)
    if version > rows.FORMAT:
        raise FormatTooNew(f"{driver.place} was written by a later release")
    high = stored.get(rows.HIGH_KEY)
    last_offset = rows.parse_number(high) if high else 0
    writer.reset(last_offset)
    await log.load(meta, last_offset=last_offset)
    async for page in pages(driver, RETAINED, rows.NOBODY):
        # Their values too: nothing else tells how large they are.
        for key, value in page:
            writer.load_retained(key, len(key) + len(value))
    async for page in pages(driver, CLIENTS, rows.NOBODY):
        await _load_sessions(driver, writer, [key for key, _ in page])
    return last_offset


async def _load_sessions(driver: Driver, writer: Writer, names: list[bytes]) -> None:
    found = await driver.rows_of(ROWS, names)
    sizes = await driver.queue_sizes([name.decode() for name in names])
    for name, size in zip(names, sizes, strict=True):
        if size:
            writer.load_queue(name.decode(), size)
    for name, values in zip(names, found, strict=True):
        for key, value in values:
            if key == rows.RECORD_KEY:
                writer.owners.put(decode_session(value))
            elif key[:1] == b"u":
                writer.durable_subscriptions.put(name.decode(), decode_subscription(value))
