"""Asking for messages by their content: the user property ``filter`` of a SUBSCRIBE (5.0), or a
stored filter, ``$filter/<id>/<topic filter>``.

The property holds for every topic filter of its packet. What cannot be used is refused in the
SUBACK, with a reason string that says what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from perdure.content import canonical
from perdure.content.stored import FILTER_PREFIX, STORED_PREFIX
from perdure.errors import MqttError
from perdure.mqtt.reason_codes import QUOTA_EXCEEDED, TOPIC_FILTER_INVALID
from perdure.observe.instruments import add

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.mqtt.packets import Subscribe

FILTER_PROPERTY: Final = "filter"


@final
class FilterRefused(MqttError):
    """A content filter that cannot be used; its sentence is for the client."""


def check_prefixes(topic_filter: str) -> None:
    """Refuse a topic filter that begins with a prefix which should have come earlier.

    Raises:
        FilterRefused: 0x8F.
    """
    if topic_filter.startswith(("$replay/", "$share/", FILTER_PREFIX)):
        raise FilterRefused(
            TOPIC_FILTER_INVALID,
            "prefixes stand in this order, each once: "
            "$replay/<from>/$share/<group>/$filter/<id>/<topic filter>",
        )
    if topic_filter.startswith(STORED_PREFIX):
        raise FilterRefused(TOPIC_FILTER_INVALID, "the broker keeps its content filters there")


def split_stored_filter(core: BrokerCore, topic_filter: str, where: str) -> tuple[str, str, str]:
    """The id of a stored filter, its text, and the topic filter behind ``$filter/<id>/``.

    Args:
        core: has the stored filters.
        topic_filter: as it came, without ``$replay/`` and ``$share/``.
        where: the filter of the SUBSCRIBE; what is returned if there is no stored one.

    Raises:
        FilterRefused: 0x8F, there is no such filter, or two of them.
    """
    if not topic_filter.startswith(FILTER_PREFIX):
        return "", where, topic_filter
    name, slash, rest = topic_filter.removeprefix(FILTER_PREFIX).partition("/")
    if not slash or not rest:
        raise FilterRefused(TOPIC_FILTER_INVALID, "$filter/<id>/<topic filter> expected")
    if where:
        raise FilterRefused(
            TOPIC_FILTER_INVALID, "either $filter/<id>/ or the user property `filter`, not both"
        )
    stored = core.stored_filters.get(name)
    if stored is None:
        raise FilterRefused(
            TOPIC_FILTER_INVALID, f"there is no stored content filter {name[:64]!r}"
        )
    return name, stored.where, rest


def requested_where(core: BrokerCore, packet: Subscribe) -> str:
    """The content filter of a SUBSCRIBE; empty = none.

    Raises:
        FilterRefused: 0x8F, it is none; 0x97, it is beyond a limit.
    """
    found = [value for name, value in packet.properties.user_properties if name == FILTER_PROPERTY]
    if not found:
        return ""
    if len(found) > 1:
        raise FilterRefused(
            TOPIC_FILTER_INVALID,
            "a SUBSCRIBE has one user property `filter` at most: join the filters with $and or $or",
        )
    bytes_max = core.limits_config.content_filter_bytes_max
    if len(found[0].encode()) > bytes_max:
        add(core.metrics.limit_refusals, ("limits.content_filter_bytes_max",))
        raise FilterRefused(QUOTA_EXCEEDED, f"a content filter has at most {bytes_max} bytes")
    try:
        return canonical(found[0])
    except ValueError as error:
        raise FilterRefused(TOPIC_FILTER_INVALID, str(error)) from error


def check_count(core: BrokerCore, where: str) -> None:
    """Refuse a content filter beyond the limit on distinct ones.

    Raises:
        FilterRefused: 0x97.
    """
    wheres = core.router.wheres
    if where and where not in wheres and len(wheres) >= core.limits_config.content_filters_max:
        add(core.metrics.limit_refusals, ("limits.content_filters_max",))
        raise FilterRefused(
            QUOTA_EXCEEDED, "too many distinct content filters are in use (content_filters_max)"
        )
