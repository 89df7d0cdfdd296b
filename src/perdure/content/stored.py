"""Content filters that are kept under an id, for clients that cannot send one.

A 3.1.1 client has no user properties: it subscribes to ``$filter/<id>/<topic filter>``. Changing a
stored filter changes the subscriptions that were made with it, from one offset of the log on.

They are kept where every backend keeps, commits and replicates small named things: each is the
retained message of ``$filters/<id>``, a topic that no client may publish or subscribe to.
"""

from __future__ import annotations

import re
from typing import Final, final

import msgspec

from perdure.content.syntax import canonical
from perdure.errors import ConfigError, StorageCorrupt
from perdure.limits import CONTENT_FILTER_ID_MAX
from perdure.model import Message, Subscription
from perdure.model.reserved import FILTERS_PREFIX

FILTER_PREFIX: Final = "$filter/"

_ID: Final = re.compile(rf"[A-Za-z0-9_.-]{{1,{CONTENT_FILTER_ID_MAX}}}", re.ASCII)


@final
class StoredFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """A filter under an id.

    Attributes:
        where: the filter, canonical.
        since_offset: it holds for messages with a greater offset.
        changed_at_us: wall time of that.
        settled: every stored subscription that it concerns has it.
    """

    where: str
    since_offset: int
    changed_at_us: int
    settled: bool = True


def check_id(name: str) -> str:
    """The id of a stored filter.

    Raises:
        ConfigError: it cannot be one.
    """
    if not _ID.fullmatch(name):
        raise ConfigError(
            f"{name[:80]!r} is no id of a content filter: "
            f"1 to {CONTENT_FILTER_ID_MAX} letters, digits, '.', '-' and '_'",
            path="id",
        )
    return name


def check_text(text: str, bytes_max: int) -> str:
    """The canonical text of a filter that is to be stored.

    Raises:
        ConfigError: it is none, or too long.
    """
    if len(text.encode(errors="surrogatepass")) > bytes_max:
        raise ConfigError(f"a content filter has at most {bytes_max} bytes", path="filter")
    try:
        return canonical(text)
    except ValueError as error:
        raise ConfigError(str(error), path="filter") from error


def to_message(name: str, stored: StoredFilter) -> Message:
    """The retained message that keeps a filter."""
    return Message(
        FILTERS_PREFIX + name,
        msgspec.json.encode(stored),
        qos=1,
        retain=True,
        published_at_us=stored.changed_at_us,
    )


def from_message(message: Message) -> tuple[str, StoredFilter]:
    """The id and the filter that a retained message keeps.

    Raises:
        StorageCorrupt: it keeps none.
    """
    name = message.topic.removeprefix(FILTERS_PREFIX)
    try:
        return name, msgspec.json.decode(message.payload, type=StoredFilter)
    except ValueError as error:
        raise StorageCorrupt(f"the content filter {name!r} does not decode: {error}") from error


def changed(sub: Subscription, stored: StoredFilter | None) -> tuple[Subscription, ...]:
    """What becomes of a subscription that was stored before its filter changed.

    Returns:
        Nothing if it stays as it is; else what is in its place: the one that has ended at the
        change, if it holds for messages before it, and the one that holds.
    """
    if stored is None or stored.where == sub.where or sub.until_offset:
        return ()
    following = msgspec.structs.replace(sub, where=stored.where)
    if sub.group or sub.backfill is not None or sub.since_offset >= stored.since_offset:
        # A group knows its filters by itself; a backfill goes on by the new one.
        return (following,)
    return (
        msgspec.structs.replace(sub, until_offset=stored.since_offset),
        msgspec.structs.replace(following, since_offset=stored.since_offset),
    )
