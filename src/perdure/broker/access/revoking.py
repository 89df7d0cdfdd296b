"""What happens to connected clients when users, rights or rules have changed.

Rights are asked for each message, so a change of the ACL holds for whatever is sent from then on.
Two things are not asked again by themselves: whether a client may be there at all, and messages
that were given to it and wait in memory for room in its window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perdure.broker.auth.grant import Grant
from perdure.mqtt.reason_codes import NOT_AUTHORIZED

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.registry import Registry
    from perdure.broker.shared.subscriptions import SharedSubscriptions

WITHDRAWN: Final = "access was withdrawn"


def revoke(core: BrokerCore, registry: Registry, shared: SharedSubscriptions) -> int:
    """Hold every connected client to the users and rules of now.

    Who would not be let in any more is disconnected with 0x87 and without its will: its user was
    removed, or the password or token that it fitted. What waits for the others is looked at again.

    Args:
        core: what every part stands on.
        registry: who is connected.
        shared: the groups that they are members of.

    Returns:
        Clients that were disconnected.
    """
    core.pipeline.now_us = core.clock.now_us()
    standing = core.standing
    count = 0
    for session in list(registry.live.values()):
        identity = session.identity
        # Who is no superuser any more is none at once.
        identity.superuser = standing.is_superuser(identity.username) or (
            isinstance(identity.grant, Grant) and identity.grant.superuser
        )
        if standing.keeps(identity, loopback=session.connection.peer.loopback):
            session.withdraw_pending()
            continue
        count += 1
        core.log.warning(
            "client.revoked",
            client_id=session.client_id,
            username=identity.username,
            address=session.connection.peer.address,
        )
        session.connection.disconnect(NOT_AUTHORIZED, WITHDRAWN, send_will=False)
    for group in shared.groups.values():
        # One that waits for a member with rights may have another one now, or none.
        group.joined()
    core.pipeline.run()
    return count
