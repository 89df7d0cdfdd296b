"""SCRAM-SHA-256 (RFC 5802, RFC 7677) as an enhanced authentication method of MQTT 5.0.

The Authentication Data are the SCRAM messages, one to a packet::

    client                                            server
    CONNECT, or AUTH 0x19   n,,n=ada,r=NONCE    ->
                            <-  r=NONCE+,s=SALT,i=4096   AUTH 0x18
    AUTH 0x18               c=biws,r=NONCE+,p=PROOF  ->
                            <-  v=SIGNATURE              CONNACK 0x00, or AUTH 0x00

The password does not travel, and the broker does not hold what would let it or a thief of its
file log in. Channel binding is not offered. Holds one exchange; it must not know packets, and
the nonce comes from outside.

Invariant: nothing before the proof tells whether a user exists. An unknown one gets a salt that
is as steady as a real one, the iterations of the others, and fails where a wrong password does.

========== ============= ========================= ==========
state      message       then                      state
========== ============= ========================= ==========
new        none          an empty challenge        first
new, first client-first  server-first              final
final      client-final  server-final, or refuse   over
========== ============= ========================= ==========
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, Protocol, final

from perdure.broker.auth.authenticate import AuthState, AuthStep, EnhancedFactory
from perdure.broker.auth.hashes import SCRAM_ITERATIONS, ScramKeys
from perdure.broker.auth.saslprep import saslprep
from perdure.errors import UsageError
from perdure.mqtt.reason_codes import CONTINUE_AUTHENTICATION, NOT_AUTHORIZED

NAME: Final = "SCRAM-SHA-256"


MESSAGE_BYTES_MAX: Final = 4096
"""A name, two nonces and a proof; far above what clients send."""

NONCE_CHARS_MAX: Final = 1024
DECOY_SALT_BYTES: Final = 16


class ScramUsers(Protocol):
    """Where the keys are."""

    def scram_keys(self, user: str) -> ScramKeys | None:
        """Keys of a user; None when there is no such user or it has no keys."""
        ...


class _State(Enum):
    NEW = "new"
    FIRST = "first"
    FINAL = "final"
    OVER = "over"


class _Failure(Exception):
    """The exchange ends; ``error`` is a server-error-value of RFC 5802 section 7."""

    def __init__(self, error: str, reason: str) -> None:
        super().__init__(reason)
        self.error = error
        self.reason = reason


@final
class ScramSha256:
    """One SCRAM-SHA-256 exchange, server side.

    Args:
        users: where the keys are.
        nonce: makes the server's part of a nonce: fresh, unguessable, printable ASCII without a
            comma, such as ``secrets.token_urlsafe`` does.
        decoy_key: secret from which the salts of unknown users come. It has to outlive a
            restart, else a salt that changes gives the name away.
        decoy_iterations: iteration count told for unknown users: what most users have.
        superusers: user names exempt from the ACL.
        bound_to: the only user that may be proved (re-authentication, or a certificate that names
            the user); None = any.
    """

    def __init__(
        self,
        users: ScramUsers,
        *,
        nonce: Callable[[], str],
        decoy_key: bytes,
        decoy_iterations: int = SCRAM_ITERATIONS,
        superusers: Iterable[str] = (),
        bound_to: str | None = None,
    ) -> None:
        self._users = users
        self._fresh_nonce = nonce
        self._decoy_key = decoy_key
        self._decoy_iterations = decoy_iterations
        self._superusers = superusers
        self._bound_to = bound_to
        self._state = _State.NEW
        self._username = ""
        self._known = False
        self._keys: ScramKeys | None = None
        self._gs2_header = b""
        self._nonce = ""
        self._client_first_bare = ""
        self._server_first = ""

    @property
    def name(self) -> str:
        """Authentication Method."""
        return NAME

    def start(self, client_id: str, data: bytes | None) -> AuthStep:
        """Take the Authentication Data of the CONNECT, or of the AUTH that re-authenticates."""
        if self._state is not _State.NEW:
            raise UsageError("an exchange starts once")
        if data is None:
            # Allowed by RFC 4422 section 3: the mechanism is the client's to open, so an empty
            # challenge asks it to.
            self._state = _State.FIRST
            return _continue(b"")
        return self._guard(self._client_first, data)

    def step(self, data: bytes | None) -> AuthStep:
        """Take the Authentication Data of the client's next AUTH packet."""
        if self._state is _State.FIRST:
            return self._guard(self._client_first, data)
        if self._state is _State.FINAL:
            return self._guard(self._client_final, data)
        raise UsageError("no step is expected")

    def _guard(self, handle: Callable[[str], AuthStep], data: bytes | None) -> AuthStep:
        """Turn whatever a client sends into a step."""
        try:
            if data is None or len(data) > MESSAGE_BYTES_MAX:
                raise _Failure("other-error", "message missing or too long")
            try:
                text = data.decode()
            except UnicodeDecodeError:
                raise _Failure("invalid-encoding", "message is not UTF-8") from None
            return handle(text)
        except _Failure as failure:
            self._state = _State.OVER
            return AuthStep(
                state=AuthState.FAILED,
                data=f"e={failure.error}".encode(),
                reason_code=NOT_AUTHORIZED,
                reason=failure.reason,
                claimed=self._username,
            )

    def _client_first(self, text: str) -> AuthStep:
        """``client-first-message``: the gs2 header, the user name and the client's nonce."""
        binding, authorization, bare = _split(text, 3)
        if binding.startswith("p="):
            raise _Failure("channel-binding-not-supported", "client insists on channel binding")
        if binding not in ("n", "y"):
            raise _Failure("other-error", "gs2 header is malformed")
        name, nonce = _split(bare, 2, extensible=True)
        if name.startswith("m="):
            raise _Failure("extensions-not-supported", "client insists on an extension")
        self._username = _unescape(_attribute("n", name))
        client_nonce = _attribute("r", nonce)
        if not _is_nonce(client_nonce):
            raise _Failure("other-error", "nonce is malformed")
        if authorization and _unescape(_attribute("a", authorization)) != self._username:
            raise _Failure("other-error", "client wants to act as another user")
        keys = self._users.scram_keys(self._username)
        self._known = keys is not None
        self._keys = keys or self._decoy(self._username)
        self._gs2_header = f"{binding},{authorization},".encode()
        self._nonce = client_nonce + self._fresh_nonce()
        self._client_first_bare = bare
        salt = base64.b64encode(self._keys.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={self._keys.iterations}"
        self._state = _State.FINAL
        return _continue(self._server_first.encode(), claimed=self._username)

    def _client_final(self, text: str) -> AuthStep:
        """``client-final-message``: the channel binding, the whole nonce and the proof."""
        keys = self._keys
        assert keys is not None
        without_proof, comma, proof_field = text.rpartition(",")
        binding, nonce = _split(without_proof, 2, extensible=True)
        if not comma or _base64(_attribute("c", binding)) != self._gs2_header:
            raise _Failure("channel-bindings-dont-match", "gs2 header changed on the way")
        if not hmac.compare_digest(_attribute("r", nonce).encode(), self._nonce.encode()):
            raise _Failure("other-error", "nonce is not the one of this exchange")
        proof = _base64(_attribute("p", proof_field))
        message = f"{self._client_first_bare},{self._server_first},{without_proof}".encode()
        signature = hmac.digest(keys.stored_key, message, "sha256")
        if len(proof) != len(signature):
            raise _Failure("invalid-proof", "proof has the wrong length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        right = hmac.compare_digest(hashlib.sha256(client_key).digest(), keys.stored_key)
        if not (right and self._known):
            raise _Failure("invalid-proof", "wrong password or unknown user")
        if self._bound_to is not None and self._username != self._bound_to:
            raise _Failure("other-error", "proved another user than the connection is for")
        self._state = _State.OVER
        verifier = base64.b64encode(hmac.digest(keys.server_key, message, "sha256"))
        return AuthStep(
            state=AuthState.DONE,
            data=b"v=" + verifier,
            username=self._username,
            superuser=self._username in self._superusers,
            proof=keys,
        )

    def _decoy(self, username: str) -> ScramKeys:
        """Keys for a user that is not there: the same each time, fitting no password."""
        name = username.encode()
        salt = hmac.digest(self._decoy_key, b"salt:" + name, "sha256")[:DECOY_SALT_BYTES]
        key = hmac.digest(self._decoy_key, b"key:" + name, "sha256")
        return ScramKeys(self._decoy_iterations, salt, key, key)


def scram_factory(
    users: ScramUsers,
    *,
    nonce: Callable[[], str],
    decoy_key: bytes,
    decoy_iterations: int = SCRAM_ITERATIONS,
    superusers: Iterable[str] = (),
) -> EnhancedFactory:
    """Make what ``EnhancedMethods.register(NAME, …)`` wants; see ``ScramSha256``."""
    exempt = frozenset(superusers)

    def make(bound_to: str | None) -> ScramSha256:
        return ScramSha256(
            users,
            nonce=nonce,
            decoy_key=decoy_key,
            decoy_iterations=decoy_iterations,
            superusers=exempt,
            bound_to=bound_to,
        )

    return make


def _continue(data: bytes, *, claimed: str = "") -> AuthStep:
    return AuthStep(
        state=AuthState.CONTINUE, data=data, reason_code=CONTINUE_AUTHENTICATION, claimed=claimed
    )


def _split(text: str, count: int, *, extensible: bool = False) -> list[str]:
    """The first fields of a message; the last one holds the rest unless extensions may follow."""
    fields = text.split(",") if extensible else text.split(",", count - 1)
    if len(fields) < count:
        raise _Failure("other-error", "message has too few fields")
    return fields[:count]


def _attribute(name: str, field: str) -> str:
    if not field.startswith(f"{name}="):
        raise _Failure("other-error", f"attribute {name} is not where it belongs")
    return field[2:]


def _unescape(text: str) -> str:
    """Read a ``saslname`` and prepare it (RFC 5802 section 5.1)."""
    pieces = text.split("=")
    for piece in pieces[1:]:
        if not piece.startswith(("2C", "3D")):
            raise _Failure("invalid-username-encoding", "user name holds a bare '='")
    decoded = pieces[0] + "".join(
        ("," if piece.startswith("2C") else "=") + piece[2:] for piece in pieces[1:]
    )
    try:
        prepared = saslprep(decoded)
    except ValueError:
        raise _Failure("invalid-username-encoding", "user name is not allowed") from None
    if not prepared:
        raise _Failure("other-error", "user name is empty")
    return prepared


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _Failure("invalid-encoding", "attribute is not base64") from None


def _is_nonce(text: str) -> bool:
    """Printable ASCII without a comma (RFC 5802 section 7), of a bounded length."""
    return 0 < len(text) <= NONCE_CHARS_MAX and all("\x21" <= char <= "\x7e" for char in text)
