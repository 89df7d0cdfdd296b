"""Reads retained messages from a server: the walk over their topics, in pages of rows."""

from __future__ import annotations

from typing import Final

from perdure.model import Message
from perdure.storage.codec import decode_retained
from perdure.storage.contract import RetainedPage
from perdure.storage.remote import rows
from perdure.storage.remote.driver import RETAINED, Driver, Row
from perdure.storage.retained_walk import ALL_END, Walk, retained_key, retained_topic

PAGE: Final = 64
"""Rows read at once: a jump leaves the rest of a page unused."""


async def read_page(
    driver: Driver, topic_filter: str, *, after_topic: str, limit: int, scan_max: int
) -> RetainedPage:
    """See ``Database.read_retained``."""
    if "+" not in topic_filter and "#" not in topic_filter:
        return await _read_one(driver, topic_filter, after_topic)
    walk = Walk(topic_filter)
    start = walk.start
    if after_topic:
        start = max(start, retained_key(after_topic) + b"\0")
    messages: list[Message] = []
    looked = 0
    while start < walk.end:
        page = await driver.scan(RETAINED, rows.NOBODY, start=start, end=walk.end, limit=PAGE)
        for key, value in page:
            if key < start:
                continue  # the walk has jumped over it
            looked += 1
            jump = walk.jump(key)
            if jump is None:
                messages.append(decode_retained(retained_topic(key), value))
            if len(messages) >= limit or looked >= scan_max:
                return RetainedPage(messages, retained_topic(key))
            start = key + b"\0" if jump is None else jump
        if len(page) < PAGE:
            break
    return RetainedPage(messages, None)


async def _read_one(driver: Driver, topic: str, after_topic: str) -> RetainedPage:
    key = retained_key(topic)
    if after_topic and key <= retained_key(after_topic):
        return RetainedPage([], None)
    (value,) = await driver.get([(RETAINED, rows.NOBODY, key)])
    return RetainedPage([] if value is None else [decode_retained(topic, value)], None)


async def expired(
    driver: Driver, *, after_key: bytes, now_us: int, limit: int
) -> tuple[list[str], bytes]:
    """Expired topics among the next ``limit`` keys, and the key to go on after (empty = end)."""
    topics: list[str] = []
    start = after_key + b"\0"
    looked = 0
    while looked < limit:
        most = min(PAGE, limit - looked)
        page: list[Row] = await driver.scan(
            RETAINED, rows.NOBODY, start=start, end=ALL_END, limit=most
        )
        for key, value in page:
            message = decode_retained(retained_topic(key), value)
            if 0 < message.expires_at_us <= now_us:
                topics.append(message.topic)
        looked += len(page)
        if len(page) < most:
            return topics, b""
        start = page[-1][0] + b"\0"
    return topics, start[:-1]
