"""The users of ``tests/wire/users.py`` as clients of this version."""

from __future__ import annotations

from tests.wire.harness import Broker
from tests.wire.peer import Peer
from tests.wire.users import ADA, BOB, with_users

WITH_USERS = with_users(ada="topic readwrite $SYS/#\n")


def ada(broker: Broker, client_id: str) -> Peer:
    """A client that may do everything."""
    return broker.connect(client_id, **ADA)


def bob(broker: Broker, client_id: str, *, clean: bool = True, expiry: int = 0) -> Peer:
    """A client with few rights."""
    return broker.connect(client_id, clean=clean, expiry=expiry, **BOB)
