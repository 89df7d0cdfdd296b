"""What one session may hold: the section `session`."""

from __future__ import annotations

from typing import Annotated, final

from perdure import limits
from perdure.config.fields import about
from perdure.config.schema.section import KIB, MIB, Section


@final
class SessionConfig(Section, frozen=True):
    """What one session may hold."""

    expiry_max_s: Annotated[
        int,
        about(
            "Longest session expiry granted; 4294967295 = never.",
            unit="s",
            ge=0,
            le=limits.SESSION_EXPIRY_NEVER_S,
        ),
    ] = limits.SESSION_EXPIRY_NEVER_S
    expiry_persistent_s: Annotated[
        int,
        about(
            "Session expiry of a 3.1.1 client that connects with clean session 0.",
            unit="s",
            ge=1,
            le=limits.SESSION_EXPIRY_NEVER_S,
        ),
    ] = limits.SESSION_EXPIRY_NEVER_S
    inflight_max: Annotated[
        int,
        about(
            "QoS 1 and 2 messages sent to a client and not yet acknowledged; a client's own "
            "receive maximum may lower it.",
            ge=1,
            le=65_535,
        ),
    ] = limits.INFLIGHT_MAX
    inflight_catch_up_max: Annotated[
        int,
        about(
            "QoS 1 messages sent to a client and not yet acknowledged while its session catches up "
            "with what it has missed: it takes a whole turn of the broker until acknowledgements "
            "are read. A client's own receive maximum lowers it, and an `inflight_max` below its "
            "default holds here as well.",
            ge=1,
            le=65_535,
        ),
    ] = 16_384
    pending_messages_max: Annotated[
        int,
        about("Messages kept for a session; the oldest are dropped beyond; 0 = no limit.", ge=0),
    ] = 0
    pending_bytes_max: Annotated[
        int, about("Payload bytes kept for a session; 0 = no limit.", unit="bytes", ge=0)
    ] = 0
    pending_age_max_s: Annotated[
        int, about("Oldest message kept for a session; 0 = no limit.", unit="s", ge=0)
    ] = 0
    memory_pending_max: Annotated[
        int,
        about(
            "Messages held in memory for a connected session, at most; one that falls further "
            "behind reads the log instead, and so does one with more than 64 whose client "
            "acknowledges none.",
            ge=1,
        ),
    ] = 1000
    subscriptions_max: Annotated[
        int,
        about(
            "Subscriptions of one session. Those that have ended or changed count as well while a "
            "message that they matched is unacknowledged.",
            ge=1,
        ),
    ] = 10_000
    subscription_bytes_max: Annotated[
        int,
        about(
            "Bytes of the topic filters of one session together, their groups and content filters "
            "included; counted as `subscriptions_max` is. 0 = no limit.",
            unit="bytes",
            ge=0,
        ),
    ] = 8 * MIB
    outbound_buffer_bytes: Annotated[
        int,
        about(
            "Bytes waiting in a connection's socket buffer before delivery to it pauses.",
            unit="bytes",
            ge=4 * KIB,
        ),
    ] = 1 * MIB
    feed_chunk: Annotated[
        int,
        about(
            "Messages read at once for a session that catches up; more if its window is open for "
            "more.",
            ge=1,
            le=65_535,
        ),
    ] = 256
