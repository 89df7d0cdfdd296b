"""SCRAM-SHA-256: the RFC's exchange, an independent client, and what a liar may learn."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.broker.auth.authenticate import AuthState, AuthStep, EnhancedMethods
from perdure.broker.auth.hashes import ScramKeys, scram_keys
from perdure.broker.auth.scram import MESSAGE_BYTES_MAX, NAME, ScramSha256, scram_factory
from perdure.errors import UsageError

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
RFC_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
KEY = b"d" * 32


class Users:
    """Users in a dict."""

    def __init__(self, **keys: ScramKeys) -> None:
        self.keys = keys

    def scram_keys(self, user: str) -> ScramKeys | None:
        return self.keys.get(user)


RFC_USERS = Users(user=scram_keys("pencil", SALT, iterations=4096))
QUICK_USERS = Users(
    ada=scram_keys("pw", b"salt", iterations=1), bob=scram_keys("pw", b"salt", iterations=1)
)


def exchange(users: Users = QUICK_USERS, *, bound_to: str | None = None) -> ScramSha256:
    return ScramSha256(
        users, nonce=lambda: RFC_NONCE, decoy_key=KEY, superusers=["bob"], bound_to=bound_to
    )


def client_final(password: str, first_bare: str, server_first: bytes, *, gs2: str = "n,,") -> bytes:
    """A client of its own: RFC 5802 section 3, written without the server's helpers."""
    fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
    salt = base64.b64decode(fields["s"])
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, int(fields["i"]))
    client_key = hmac.new(salted, b"Client Key", hashlib.sha256).digest()
    channel = base64.b64encode(gs2.encode()).decode()
    without_proof = f"c={channel},r={fields['r']}"
    message = f"{first_bare},{server_first.decode()},{without_proof}".encode()
    stored = hashlib.sha256(client_key).digest()
    signature = hmac.new(stored, message, hashlib.sha256).digest()
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def run(
    server: ScramSha256, password: str = "pw", *, bare: str = "n=ada,r=abc", gs2: str = "n,,"
) -> AuthStep:
    first = server.start("c", f"{gs2}{bare}".encode())
    assert first.state is AuthState.CONTINUE
    assert first.data is not None
    return server.step(client_final(password, bare, first.data, gs2=gs2))


def test_exchange_of_rfc_7677() -> None:
    server = exchange(RFC_USERS)
    first = server.start("c", b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first.state is AuthState.CONTINUE
    assert first.reason_code == 0x18
    assert first.username is None
    assert first.data == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    last = server.step(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert last.state is AuthState.DONE
    assert last.reason_code == 0x00
    assert last.username == "user"
    assert last.data == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize("gs2", ["n,,", "y,,", "n,a=ada,"])
def test_independent_client_gets_in(gs2: str) -> None:
    last = run(exchange(), gs2=gs2)
    assert (last.state, last.username, last.superuser) == (AuthState.DONE, "ada", False)


def test_superuser() -> None:
    assert run(exchange(), bare="n=bob,r=abc").superuser


def test_extensions_that_are_optional_are_signed_and_ignored() -> None:
    assert run(exchange(), bare="n=ada,r=abc,x=1").state is AuthState.DONE


def test_client_may_wait_for_an_empty_challenge() -> None:
    server = exchange()
    assert server.start("c", None).data == b""
    first = server.step(b"n,,n=ada,r=abc")
    assert first.data is not None
    assert server.step(client_final("pw", "n=ada,r=abc", first.data)).state is AuthState.DONE


def test_escaped_and_prepared_names() -> None:
    users = Users(**{"a,=b": scram_keys("pw", b"salt", iterations=1)})
    last = run(exchange(users), bare="n=a=2C=3D\u00adb,r=abc")
    assert last.username == "a,=b"


@pytest.mark.parametrize(("user", "password"), [("ada", "no"), ("eve", "pw"), ("eve", "")])
def test_wrong_password_and_unknown_user_fail_alike(user: str, password: str) -> None:
    last = run(exchange(), password, bare=f"n={user},r=abc")
    assert last == AuthStep(
        state=AuthState.FAILED,
        data=b"e=invalid-proof",
        reason_code=0x87,
        reason="wrong password or unknown user",
        claimed=user,
    )


def test_salt_of_an_unknown_user_is_steady_and_its_own() -> None:
    def salt(user: str, key: bytes = KEY) -> str:
        server = ScramSha256(QUICK_USERS, nonce=lambda: "x", decoy_key=key, decoy_iterations=7)
        data = server.start("c", f"n,,n={user},r=abc".encode()).data
        assert data is not None
        nonce, value, iterations = data.decode().split(",")
        assert (nonce, iterations) == ("r=abcx", "i=7")
        return value

    assert salt("eve") == salt("eve")
    assert salt("eve") != salt("mal")
    assert salt("eve") != salt("eve", b"e" * 32)
    assert len(base64.b64decode(salt("eve")[2:])) == 16


def test_decoy_proof_that_fits_the_decoy_keys_does_not_get_in() -> None:
    """Whoever knew the decoy key could compute its keys; they still belong to nobody."""
    key = hmac.digest(KEY, b"key:eve", "sha256")
    server = exchange()
    first = server.start("c", b"n,,n=eve,r=abc").data
    assert first is not None
    nonce = first.decode().split(",")[0]
    message = f"n=eve,r=abc,{first.decode()},c=biws,{nonce}".encode()
    proof = base64.b64encode(hmac.digest(key, message, "sha256"))
    last = server.step(f"c=biws,{nonce},p=".encode() + proof)
    assert last.state is AuthState.FAILED


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", b"e=other-error"),
        (b"n,,n=ada", b"e=other-error"),
        (b"p=tls-unique,,n=ada,r=abc", b"e=channel-binding-not-supported"),
        (b"x,,n=ada,r=abc", b"e=other-error"),
        (b"n,,m=1,n=ada,r=abc", b"e=extensions-not-supported"),
        (b"n,,u=ada,r=abc", b"e=other-error"),
        (b"n,,n=ada,s=abc", b"e=other-error"),
        (b"n,,n=,r=abc", b"e=other-error"),
        (b"n,,n=ada,r=", b"e=other-error"),
        (b"n,,n=ada,r=a b", b"e=other-error"),
        (b"n,,n=a=b,r=abc", b"e=invalid-username-encoding"),
        (b"n,,n=a\x07,r=abc", b"e=invalid-username-encoding"),
        (b"n,a=bob,n=ada,r=abc", b"e=other-error"),
        (b"n,,n=\xff,r=abc", b"e=invalid-encoding"),
        (b"n,,n=ada,r=" + b"x" * 1025, b"e=other-error"),
        (b"n,,n=ada,r=abc,x=" + b"x" * MESSAGE_BYTES_MAX, b"e=other-error"),
    ],
)
def test_bad_first_messages(data: bytes, error: bytes) -> None:
    server = exchange()
    step = server.start("c", data)
    assert (step.state, step.reason_code, step.data) == (AuthState.FAILED, 0x87, error)
    with pytest.raises(UsageError):
        server.step(data)


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        (b"c=biws", b"c=eSws", b"e=channel-bindings-dont-match"),
        (b"c=biws", b"c=bi*s", b"e=invalid-encoding"),
        (b"c=biws", b"c=\xc3\xa9", b"e=invalid-encoding"),
        (b"r=abc", b"r=abd", b"e=other-error"),
        (b"r=abc", "r=é".encode(), b"e=other-error"),
        (b"p=", b"p=AAAA", b"e=invalid-proof"),
        (b",p=", b",q=", b"e=other-error"),
        (b",p=", b"", b"e=other-error"),
    ],
)
def test_bad_final_messages(old: bytes, new: bytes, error: bytes) -> None:
    server = exchange()
    first = server.start("c", b"n,,n=ada,r=abc").data
    assert first is not None
    final = client_final("pw", "n=ada,r=abc", first)
    assert old in final
    step = server.step(final.replace(old, new, 1))
    assert (step.state, step.reason_code, step.data) == (AuthState.FAILED, 0x87, error)


def test_final_message_may_not_be_missing() -> None:
    server = exchange()
    server.start("c", b"n,,n=ada,r=abc")
    assert server.step(None).state is AuthState.FAILED


def test_messages_cannot_be_replayed_into_another_exchange() -> None:
    nonces = iter(["one", "two"])
    seen: list[bytes] = []
    for _ in range(2):
        server = ScramSha256(QUICK_USERS, nonce=lambda: next(nonces), decoy_key=KEY)
        first = server.start("c", b"n,,n=ada,r=abc").data
        assert first is not None
        seen.append(client_final("pw", "n=ada,r=abc", first))
        state = server.step(seen[0]).state
        assert state is (AuthState.DONE if len(seen) == 1 else AuthState.FAILED)


def test_misuse_by_our_own_code() -> None:
    server = exchange()
    with pytest.raises(UsageError):
        server.step(b"x")
    run(server)
    with pytest.raises(UsageError):
        server.step(b"x")
    with pytest.raises(UsageError):
        server.start("c", b"x")


@pytest.mark.spec("MQTT-4.12.1-1")
def test_reauthentication_through_the_registry_keeps_the_user() -> None:
    methods = EnhancedMethods()
    methods.register(NAME, scram_factory(QUICK_USERS, nonce=lambda: "n", decoy_key=KEY))
    for user, state in [("ada", AuthState.DONE), ("bob", AuthState.FAILED)]:
        method = methods.begin_again(NAME, connected_with=NAME, username="ada")
        assert isinstance(method, ScramSha256)
        assert method.name == "SCRAM-SHA-256"
        assert run(method, bare=f"n={user},r=abc").state is state
    first = methods.begin(NAME)
    assert isinstance(first, ScramSha256)
    assert run(first, bare="n=bob,r=abc").username == "bob"


@given(st.one_of(st.binary(max_size=80), st.text(alphabet="n,ry=abp24CDm", max_size=40)))
def test_any_first_message_is_answered(data: bytes | str) -> None:
    step = exchange().start("c", data if isinstance(data, bytes) else data.encode())
    assert step.state in (AuthState.CONTINUE, AuthState.FAILED)


@given(st.one_of(st.binary(max_size=80), st.text(alphabet="c=biws,rp", max_size=40)))
def test_no_made_up_final_message_gets_in(data: bytes | str) -> None:
    server = exchange()
    server.start("c", b"n,,n=ada,r=abc")
    step = server.step(data if isinstance(data, bytes) else data.encode())
    assert (step.state, step.username) == (AuthState.FAILED, None)
