"""A broker with two users and an access file, for the cases of authentication and access."""

from __future__ import annotations

from typing import TypedDict

from tests.wire.harness import Options


class Login(TypedDict):
    """A user name and a password, as ``Broker.connect`` takes them."""

    username: str
    password: str


ADA: Login = {"username": "ada", "password": "correct horse"}
"""Who may do everything."""
BOB: Login = {"username": "bob", "password": "päss wörd"}
"""Who has few rights."""


def with_users(*, ada: str = "", patterns: str = "") -> Options:
    """Options of such a broker.

    Args:
        ada: further rules of ada.
        patterns: further patterns.
    """
    rules = (
        f"user ada\ntopic readwrite #\n{ada}\n"
        "user bob\ntopic readwrite bob/#\ntopic read news/#\ntopic write inbox/+\n\n"
        f"pattern readwrite own/%c/#\n{patterns}"
    )
    return Options(
        users={user["username"]: user["password"] for user in (ADA, BOB)},
        files={"acl": rules},
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
