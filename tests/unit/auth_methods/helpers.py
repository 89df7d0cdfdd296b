"""What tests of methods share: a context with a clock that stands still, and requests."""

from __future__ import annotations

from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from perdure.broker.auth.authenticate import AuthRequest
from perdure.broker.auth.method import MethodContext
from perdure.observe.logs import get_logger
from perdure.observe.metrics import Metrics
from tests.support.clock import START_US, VirtualClock

NOW_S = START_US // 1_000_000
SECRET = b"s" * 48
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()


def pem(key: Any) -> bytes:
    written: bytes = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return written


def token(
    key: Any = SECRET, alg: str = "HS256", *, kid: str | None = None, **changes: Any
) -> bytes:
    claims = {"sub": "ada", "exp": NOW_S + 60} | changes
    headers = None if kid is None else {"kid": kid}
    return jwt.encode(
        {name: value for name, value in claims.items() if value is not None},
        key,
        algorithm=alg,
        headers=headers,
    ).encode()


class Told:
    """What a method has said of users that have changed."""

    def __init__(self) -> None:
        self.users: list[str | None] = []

    def __call__(self, username: str | None) -> None:
        self.users.append(username)


def make_context(
    name: str, *, clock: VirtualClock | None = None, changed: Told | None = None
) -> MethodContext:
    """A method's context."""
    return MethodContext(
        name=name,
        clock=clock or VirtualClock(),
        log=get_logger("test"),
        metrics=Metrics(),
        random_bytes=bytes,
        changed=changed or Told(),
    )


def asking(
    user: str | None = "ada",
    password: bytes | str | None = b"pw",
    *,
    client_id: str = "c",
    now_us: int = 0,
) -> AuthRequest:
    """A CONNECT."""
    if isinstance(password, str):
        password = password.encode()
    return AuthRequest(
        client_id=client_id,
        username=user,
        password=password,
        address="192.0.2.7",
        listener="tcp",
        now_us=now_us,
    )
