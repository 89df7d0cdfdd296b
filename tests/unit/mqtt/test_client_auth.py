"""The client's side of enhanced authentication, without a connection around it."""

from __future__ import annotations

import pytest

from perdure.errors import UsageError
from perdure.mqtt.client_auth import ClientAuth
from perdure.mqtt.errors import ProtocolViolation
from perdure.mqtt.packets import EMPTY, Auth, Properties


class Steps:
    """A method that counts what it is asked."""

    method = "steps"

    def __init__(self) -> None:
        self.finished: list[bytes | None] = []

    def start(self) -> bytes | None:
        return b"first"

    def step(self, data: bytes) -> bytes | None:
        return b"to " + data

    def finish(self, data: bytes | None) -> None:
        self.finished.append(data)


def _says(data: bytes | None, method: str | None = "steps") -> Properties:
    return Properties(authentication_method=method, authentication_data=data)


def test_without_a_method_nothing_is_added_and_nothing_can_begin() -> None:
    auth = ClientAuth(None)
    properties = Properties(receive_maximum=3)
    assert auth.begin(properties) is properties
    auth.finish(_says(b"x"))
    with pytest.raises(UsageError, match="no authentication method"):
        auth.begin_again()
    with pytest.raises(ProtocolViolation, match="not asked for"):
        auth.answer(Auth(0x18, EMPTY), is_connected=True)


def test_method_and_data_are_added_to_a_copy() -> None:
    properties = Properties(receive_maximum=3)
    begun = ClientAuth(Steps()).begin(properties)
    assert begun == Properties(
        receive_maximum=3, authentication_method="steps", authentication_data=b"first"
    )
    assert properties == Properties(receive_maximum=3)
    assert ClientAuth(Steps()).begin_again() == Auth(0x19, _says(b"first"))


@pytest.mark.parametrize("method", ["steps", None])
def test_a_challenge_is_answered_and_a_success_is_checked(method: str | None) -> None:
    steps = Steps()
    auth = ClientAuth(steps)
    challenge = Auth(0x18, _says(b"you", method))
    assert auth.answer(challenge, is_connected=False) == Auth(0x18, _says(b"to you"))
    assert auth.answer(Auth(0, _says(b"done", method)), is_connected=True) is None
    auth.finish(_says(b"connack"))
    auth.finish(EMPTY)
    assert steps.finished == [b"done", b"connack"]


def test_another_method_and_a_success_before_connack_are_violations() -> None:
    auth = ClientAuth(Steps())
    with pytest.raises(ProtocolViolation, match="not asked for"):
        auth.answer(Auth(0x18, _says(b"x", "other")), is_connected=True)
    with pytest.raises(ProtocolViolation, match="before CONNACK"):
        auth.answer(Auth(0, _says(b"x")), is_connected=False)
