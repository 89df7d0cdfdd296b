"""The nouns of the broker: plain values that every floor may hold."""

from perdure.model.cursor import Cursor
from perdure.model.delivery_options import DeliveryOptions, combine, holds, holds_within
from perdure.model.inbox_entry import InboxEntry
from perdure.model.message import Message
from perdure.model.session_record import (
    GroupRecord,
    SessionRecord,
    StoredSession,
    Will,
)
from perdure.model.subscription import BackfillProgress, Subscription

__all__ = [
    "BackfillProgress",
    "Cursor",
    "DeliveryOptions",
    "GroupRecord",
    "InboxEntry",
    "Message",
    "SessionRecord",
    "StoredSession",
    "Subscription",
    "Will",
    "combine",
    "holds",
    "holds_within",
]
