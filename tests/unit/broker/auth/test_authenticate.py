"""Anonymous policy, certificates, the chain, and the registry of enhanced methods."""

from __future__ import annotations

import pytest

from perdure.broker.auth.authenticate import (
    AnonymousMode,
    AnonymousPolicy,
    AuthRequest,
    AuthResult,
    AuthState,
    AuthStep,
    CertificateAuthenticator,
    Chain,
    EnhancedMethod,
    EnhancedMethods,
    accepted,
    refused,
    undecided,
)
from perdure.errors import MqttError


class Fixed:
    """Answers the same each time and counts."""

    def __init__(self, result: AuthResult) -> None:
        self.result = result
        self.calls = 0

    async def authenticate(self, request: AuthRequest) -> AuthResult:
        self.calls += 1
        return self.result


class OneStep:
    """Proves the user it was bound to."""

    name = "X-ONE"

    def __init__(self, bound_to: str | None) -> None:
        self.bound_to = bound_to

    def start(self, client_id: str, data: bytes | None) -> AuthStep:
        return AuthStep(state=AuthState.DONE, username=self.bound_to)

    def step(self, data: bytes | None) -> AuthStep:
        raise AssertionError("one step only")


@pytest.mark.parametrize(
    ("mode", "loopback", "ok"),
    [
        ("always", False, True),
        ("always", True, True),
        ("loopback", False, False),
        ("loopback", True, True),
        ("never", False, False),
        ("never", True, False),
    ],
)
async def test_anonymous_modes(mode: AnonymousMode, loopback: bool, ok: bool) -> None:
    result = await AnonymousPolicy(mode).authenticate(AuthRequest(client_id="c", loopback=loopback))
    assert result.ok is ok
    assert result.undecided is not ok


async def test_anonymous_does_not_believe_a_stated_user_name() -> None:
    result = await AnonymousPolicy("always").authenticate(
        AuthRequest(client_id="c", username="admin", password=b"guess")
    )
    assert result.ok
    assert result.username is None
    assert not result.superuser


async def test_certificate_subject_becomes_the_user() -> None:
    method = CertificateAuthenticator(["tls"], superusers=["root"])
    ok = await method.authenticate(
        AuthRequest(client_id="c", username="x", listener="tls", certificate_subject="pump-7")
    )
    assert (ok.ok, ok.username, ok.superuser) == (True, "pump-7", False)
    root = await method.authenticate(
        AuthRequest(client_id="c", listener="tls", certificate_subject="root")
    )
    assert root.superuser


@pytest.mark.parametrize("subject", [None, ""])
async def test_certificate_listener_refuses_without_subject(subject: str | None) -> None:
    chain = Chain([CertificateAuthenticator(["tls"]), AnonymousPolicy("always")])
    result = await chain.authenticate(
        AuthRequest(client_id="c", listener="tls", certificate_subject=subject)
    )
    assert (result.ok, result.reason_code) == (False, 0x87)


async def test_certificate_has_no_opinion_on_other_listeners() -> None:
    result = await CertificateAuthenticator(["tls"]).authenticate(
        AuthRequest(client_id="c", listener="tcp", certificate_subject="pump-7")
    )
    assert result.undecided


async def test_chain_stops_at_the_first_opinion() -> None:
    silent = Fixed(undecided("a"))
    no = Fixed(refused("b", 0x86))
    yes = Fixed(accepted("c", "u"))
    result = await Chain([silent, no, yes]).authenticate(AuthRequest(client_id="c"))
    assert (result.ok, result.reason_code, result.method) == (False, 0x86, "b")
    assert (silent.calls, no.calls, yes.calls) == (1, 1, 0)


@pytest.mark.parametrize(("username", "reason"), [(None, 0x87), ("u", 0x86)])
async def test_chain_refuses_when_nobody_decides(username: str | None, reason: int) -> None:
    result = await Chain([Fixed(undecided("a"))]).authenticate(
        AuthRequest(client_id="c", username=username)
    )
    assert (result.ok, result.reason_code, result.undecided) == (False, reason, False)


def _methods() -> EnhancedMethods:
    methods = EnhancedMethods()
    methods.register("X-ONE", OneStep)
    return methods


@pytest.mark.spec("MQTT-4.12.0-1")
def test_unknown_method_is_8c() -> None:
    with pytest.raises(MqttError) as error:
        _methods().begin("X-TWO")
    assert error.value.reason_code == 0x8C


def test_begin_is_not_bound_to_a_user() -> None:
    method: EnhancedMethod = _methods().begin("X-ONE")
    assert method.start("c", b"").username is None
    assert method.name == "X-ONE"


@pytest.mark.spec("MQTT-4.12.1-1")
def test_reauthentication_keeps_method_and_user() -> None:
    methods = _methods()
    again = methods.begin_again("X-ONE", connected_with="X-ONE", username="ada")
    assert again.start("c", b"").username == "ada"
    with pytest.raises(MqttError) as error:
        methods.begin_again("X-ONE", connected_with="X-TWO", username="ada")
    assert error.value.reason_code == 0x82


def test_registry_names_and_removal() -> None:
    methods = _methods()
    assert methods.names == ("X-ONE",)
    methods.remove("X-ONE")
    methods.remove("X-ONE")
    assert not methods.names
    with pytest.raises(MqttError):
        methods.begin_again("X-ONE", connected_with="X-ONE", username="ada")
