"""Reads retained messages, by a ``Walk`` over the keys of their topics."""

from __future__ import annotations

from perdure.model import Message
from perdure.storage.codec import decode_retained
from perdure.storage.contract import RetainedPage
from perdure.storage.retained_walk import ALL_END, Walk, retained_key, retained_topic
from perdure.storage.rocksdb.engine import RETAINED, Engine


def read_page(
    engine: Engine, topic_filter: str, *, after_topic: str, limit: int, scan_max: int
) -> RetainedPage:
    """See ``Database.read_retained``."""
    if "+" not in topic_filter and "#" not in topic_filter:
        return _read_one(engine, topic_filter, after_topic)
    walk = Walk(topic_filter)
    messages: list[Message] = []
    seeker = engine.seeker(RETAINED, walk.end)
    start = walk.start
    if after_topic:
        start = max(start, retained_key(after_topic) + b"\0")
    key = seeker.seek(start)
    looked = 0
    while key is not None:
        looked += 1
        jump = walk.jump(key)
        if jump is None:
            messages.append(decode_retained(retained_topic(key), seeker.value()))
        if len(messages) >= limit or looked >= scan_max:
            return RetainedPage(messages, retained_topic(key))
        key = seeker.next() if jump is None else seeker.seek(jump)
    return RetainedPage(messages, None)


def _read_one(engine: Engine, topic: str, after_topic: str) -> RetainedPage:
    key = retained_key(topic)
    if after_topic and key <= retained_key(after_topic):
        return RetainedPage([], None)
    value = engine.get(RETAINED, key)
    return RetainedPage([] if value is None else [decode_retained(topic, value)], None)


def expired(
    engine: Engine, *, after_key: bytes, now_us: int, limit: int
) -> tuple[list[str], bytes]:
    """Expired topics among the next ``limit`` keys, and the key to go on after (empty = end)."""
    topics: list[str] = []
    rows = engine.items(RETAINED, after_key + b"\0", ALL_END)
    for looked, (key, value) in enumerate(rows, 1):
        message = decode_retained(retained_topic(key), value)
        if 0 < message.expires_at_us <= now_us:
            topics.append(message.topic)
        if looked >= limit:
            return topics, key
    return topics, b""
