"""What tests of methods share: a context with a clock that stands still, and requests."""

from __future__ import annotations

from perdure.broker.auth.authenticate import AuthRequest
from perdure.broker.auth.method import MethodContext
from perdure.observe.logs import get_logger
from perdure.observe.metrics import Metrics
from tests.support.clock import VirtualClock


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
