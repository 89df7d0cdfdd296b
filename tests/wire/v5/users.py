"""A broker with two users and an access file, for the cases of authentication and access."""

from __future__ import annotations

from tests.wire.harness import Broker, Options
from tests.wire.peer import Peer

WITH_USERS = Options(
    users={"ada": "correct horse", "bob": "päss wörd"},
    files={
        "acl": "user ada\ntopic readwrite #\ntopic readwrite $SYS/#\n\n"
        "user bob\ntopic readwrite bob/#\ntopic read news/#\ntopic write inbox/+\n\n"
        "pattern readwrite own/%c/#\n"
    },
    settings={
        "auth.allow_anonymous": "never",
        "auth.password_file": "{directory}/users",
        "auth.acl_file": "{directory}/acl",
    },
    mosquitto=(
        "allow_anonymous false",
        "password_file {directory}/users",
        "acl_file {directory}/acl",
    ),
)


def ada(broker: Broker, client_id: str) -> Peer:
    """A client that may do everything."""
    return broker.connect(client_id, username="ada", password="correct horse")


def bob(broker: Broker, client_id: str, *, clean: bool = True, expiry: int = 0) -> Peer:
    """A client with few rights."""
    return broker.connect(
        client_id, clean=clean, expiry=expiry, username="bob", password="päss wörd"
    )
