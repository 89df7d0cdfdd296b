"""What a SUBSCRIBE asks for, and whether it may: its topic filters, and their content filters.

Messages are asked for by their content with the user property ``filter`` of a SUBSCRIBE (5.0), or
a stored filter, ``$filter/<id>/<topic filter>``. The property holds for every topic filter of its
packet. What cannot be used is refused in the SUBACK, with a reason string that says what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

from perdure.content import canonical
from perdure.content.stored import FILTER_PREFIX
from perdure.errors import MqttError
from perdure.model import Subscription
from perdure.model.reserved import is_reserved
from perdure.mqtt.reason_codes import (
    QUOTA_EXCEEDED,
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED,
    TOPIC_FILTER_INVALID,
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
)
from perdure.observe.instruments import add
from perdure.topic.names import is_wildcard, parse_shared, validate_topic_filter

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.mqtt.packets import Subscribe, SubscribeFilter

FILTER_PROPERTY: Final = "filter"


@final
class FilterRefused(MqttError):
    """A content filter that cannot be used; its sentence is for the client."""


class RequestedFilter(NamedTuple):
    """A topic filter, taken apart.

    Attributes:
        group: of a shared subscription; empty = it is none.
        topic_filter: without prefixes.
        where_id: of a stored content filter; empty = none.
        where: the content filter; empty = none.
    """

    group: str
    topic_filter: str
    where_id: str
    where: str


def parse_filter(core: BrokerCore, name: str, where: str) -> RequestedFilter:
    """Take a topic filter apart.

    Args:
        core: of the broker.
        name: the filter, without ``$replay/<from>/``.
        where: the content filter that its SUBSCRIBE has; empty = none.

    Raises:
        MqttError: it is none, or of a kind that this broker is told not to have.
    """
    config = core.mqtt_config
    group, topic_filter = parse_shared(name)
    where_id, where, topic_filter = split_stored_filter(core, topic_filter, where)
    validate_topic_filter(topic_filter, levels_max=config.topic_levels_max)
    check_prefixes(topic_filter)
    if group and not config.shared_subscription_available:
        raise MqttError(
            SHARED_SUBSCRIPTIONS_NOT_SUPPORTED, "shared subscriptions are not supported"
        )
    if not config.wildcard_subscription_available and is_wildcard(topic_filter):
        raise MqttError(WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED, "wildcards are not supported")
    return RequestedFilter(group, topic_filter, where_id, where)


def requested_identifier(core: BrokerCore, packet: Subscribe) -> int:
    """The subscription identifier of a SUBSCRIBE; 0 = none.

    Raises:
        MqttError: 0xA1, this broker is told to have none.
    """
    identifiers = packet.properties.subscription_identifiers
    if identifiers and not core.mqtt_config.subscription_identifier_available:
        raise MqttError(
            SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED, "subscription identifiers not supported"
        )
    return identifiers[0] if identifiers else 0


def subscription(
    core: BrokerCore, parsed: RequestedFilter, requested: SubscribeFilter, identifier: int
) -> Subscription:
    """What a filter makes, from here on.

    Args:
        core: of the broker.
        parsed: the filter, taken apart.
        requested: its options.
        identifier: of the subscription; 0 = none.
    """
    return Subscription(
        parsed.topic_filter,
        parsed.group,
        qos=min(requested.qos, core.mqtt_config.maximum_qos),
        no_local=requested.no_local,
        retain_as_published=requested.retain_as_published,
        retain_handling=requested.retain_handling,
        identifier=identifier,
        since_offset=core.dispatcher.offset,
        where=parsed.where,
        where_id=parsed.where_id,
    )


def check_room(
    core: BrokerCore, held: int, held_bytes: int, sub: Subscription, existing: Subscription | None
) -> None:
    """Refuse a subscription that is one too many.

    Args:
        core: of the broker.
        held: subscriptions of the session, those included that it remembers.
        held_bytes: what they are called.
        sub: it would have.
        existing: what has its name now.

    Raises:
        MqttError: 0x97.
    """
    more_bytes = sub.size
    if existing is None:
        _check_number(core, held)
    else:
        more_bytes -= existing.size
    most = core.session_config.subscription_bytes_max
    if most and more_bytes > 0 and held_bytes + more_bytes > most:
        add(core.metrics.limit_refusals, ("session.subscription_bytes_max",))
        raise MqttError(QUOTA_EXCEEDED, "the topic filters of the session are too long together")


def _check_number(core: BrokerCore, held: int) -> None:
    metrics = core.metrics
    if held >= core.session_config.subscriptions_max:
        add(metrics.limit_refusals, ("session.subscriptions_max",))
        raise MqttError(QUOTA_EXCEEDED, "too many subscriptions")
    most = core.limits_config.subscriptions_max
    if most and metrics.subscriptions + metrics.subscriptions_offline >= most:
        add(metrics.limit_refusals, ("limits.subscriptions_max",))
        raise MqttError(QUOTA_EXCEEDED, "too many subscriptions in the broker")


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
    if is_reserved(topic_filter):
        raise FilterRefused(TOPIC_FILTER_INVALID, "the broker keeps records of its own there")


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
