"""What a group of a shared subscription makes of a message to one of its members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from perdure.admin.records.explain import Finding
from perdure.model import Message, Subscription

if TYPE_CHECKING:
    from perdure.server.rules import Rules

MEMBERS_NAMED_MAX: Final = 3


def explain_group(
    sub: Subscription, message: Message, rules: Rules | None, *, online: bool
) -> list[Finding]:
    """What a shared subscription makes of the message."""
    text = "the subscription is shared: each message goes to one member of the group only"
    found = [Finding("subscription", True, "shared", text)]
    if rules is None:
        return found
    view = rules.group(sub.group_key, message)
    able = _names([*view.free, *view.busy])
    if not online and able:
        text = f"the client is offline, and the group's messages go to {able}"
        found.append(Finding("subscription", False, "shared_elsewhere", text))
    elif not online and view.unable:
        names = _names(view.unable)
        text = f"the client is offline, and passed over is what no connected member ({names})"
        text += " may read or has room for in its Maximum Packet Size"
        found.append(Finding("subscription", False, "passed_over", text))
    elif online and view.is_busy:
        if view.free:
            text = f"the client has no room now, and the group's messages go to {_names(view.free)}"
            found.append(Finding("subscription", False, "shared_elsewhere", text))
        elif not message.qos or not rules.is_recorded(message):
            text = "what is not recorded is dropped: no member of the group has room for it now"
            found.append(Finding("subscription", False, "congested", text))
        elif able:
            text = f"the member of the group that first has room gets it: this client, or {able}"
            found.append(Finding("subscription", True, "shared_with_others", text))
    elif online and able:  # else it is the only one
        text = f"one member of the group gets it: this client, or {able}"
        found.append(Finding("subscription", True, "shared_with_others", text))
    return found


def expired_ungiven(group_key: str, last: Message, rules: Rules, now_us: int) -> list[Finding]:
    """The last recorded message, if its time was over before the group gave it to a member.

    Args:
        group_key: of the group.
        last: the message.
        rules: of the broker.
        now_us: steady time.
    """
    if not 0 < last.expires_at_us <= now_us or last.offset <= rules.given_by(group_key):
        return []
    text = "the last recorded message is past its message expiry, and was given to no member"
    return [Finding("record", False, "message_expired", text)]


def _names(members: Sequence[str]) -> str:
    """Some client identifiers of many."""
    names = sorted(set(members))
    also = "" if len(names) <= MEMBERS_NAMED_MAX else f" and {len(names) - MEMBERS_NAMED_MAX} more"
    return f"{', '.join(names[:MEMBERS_NAMED_MAX])}{also}"
