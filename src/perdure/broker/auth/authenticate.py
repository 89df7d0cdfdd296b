"""The seam of authentication: who is at the other end of a connection.

Holds the values that pass through the seam, the methods that need no file (anonymous,
certificate) and the chain that joins methods. The password file is in ``credentials``,
SCRAM in ``scram``. It must not know packets, sessions or topics.

Invariant: a user name leaves this room in an ``AuthResult`` only if it was proved. A name that
a client merely states is never an identity, so no ACL line can be had by claiming it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, Protocol, TypeAlias, final

import msgspec

from perdure.broker.auth.authorize import Identity
from perdure.broker.auth.guard import LoginBan
from perdure.errors import MqttError
from perdure.mqtt.reason_codes import (
    BAD_AUTHENTICATION_METHOD,
    BAD_USERNAME_OR_PASSWORD,
    NOT_AUTHORIZED,
    PROTOCOL_ERROR,
    SUCCESS,
)

ANONYMOUS: Final = "anonymous"
CERTIFICATE: Final = "certificate"

AnonymousMode: TypeAlias = Literal["loopback", "always", "never"]


class AuthRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a CONNECT and its connection say about the client.

    Attributes:
        client_id: as the client sent it, or as the broker assigned it.
        username: user name of the CONNECT packet, None when absent.
        password: password of the CONNECT packet, None when absent.
        address: IP address of the peer.
        loopback: the peer is on this machine.
        listener: name of the listener (``tcp``, ``tls``, ...).
        certificate_subject: common name of a verified client certificate.
        certificate: that certificate, DER; empty = there is none.
        protocol: MQTT protocol level, 4 or 5.
        now_us: monotonic time of the request.
    """

    client_id: str
    username: str | None = None
    password: bytes | None = None
    address: str = ""
    loopback: bool = False
    listener: str = ""
    certificate_subject: str | None = None
    certificate: bytes = b""
    protocol: int = 5
    now_us: int = 0


class AuthResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one ``AuthRequest``.

    Attributes:
        ok: the client may connect.
        reason_code: 0x00, or the MQTT 5.0 reason code of the refusal (0x86 bad user name or
            password, 0x87 not authorized, 0x88 server unavailable, 0x89 server busy).
        username: the proved user name; None = anonymous.
        superuser: exempt from the ACL.
        method: what decided: ``anonymous``, ``password``, ``certificate``, ``none``.
        undecided: the method has no opinion on such a request; a chain asks the next one.
        proof: the entry of the credentials file that the client fitted; None = none was asked.
        reason: of a refusal, for operators: it may tell a guesser too much.
        limit: the setting that refused the client before its password was looked at.
        ban: a temporary ban that this failure brings.
        delay_us: how long the client waits before it hears that it is refused.
        grant: what the login allows beside the ACL file; None = nothing is said of it.
        expires_us: monotonic time at which the login ends; 0 = never.
        recheck_us: monotonic time at which its method is asked again; 0 = never by itself.
    """

    ok: bool
    reason_code: int
    username: str | None = None
    superuser: bool = False
    method: str = "none"
    undecided: bool = False
    proof: object | None = None
    reason: str = ""
    limit: str = ""
    ban: LoginBan | None = None
    delay_us: int = 0
    grant: object | None = None
    expires_us: int = 0
    recheck_us: int = 0


class Authenticator(Protocol):
    """Decides on the credentials of a CONNECT packet."""

    async def authenticate(self, request: AuthRequest) -> AuthResult:
        """Decide; never raises for what a client sent."""
        ...


class Standing(Protocol):
    """Says of clients that were let in whether they still would be, after rules have changed."""

    def takes_certificates(self, listener: str) -> bool:
        """Whether a client certificate is the user's name on a listener."""
        ...

    def keeps(self, identity: Identity, *, loopback: bool) -> bool:
        """Whether a connected client may stay."""
        ...

    def stands(self, username: str | None, method: str) -> bool:
        """Whether a user may still be there; of a session without a connection."""
        ...

    def is_superuser(self, username: str | None) -> bool:
        """Whether a proved user is exempt from the ACL, as of now."""
        ...

    def offers_enhanced(self, listener: str) -> bool:
        """Whether clients of a listener may use enhanced authentication."""
        ...

    def grant_without_login(self, method: str) -> object | None:
        """What stands for the grant of a login by a method where there is no connection."""
        ...

    async def renew(self, request: AuthRequest, identity: Identity) -> AuthResult:
        """Ask the method that has let a client in whether it still may be there."""
        ...


class AllStand:
    """Nobody is ever removed: a broker without users."""

    def takes_certificates(self, listener: str) -> bool:
        """None does."""
        return False

    def keeps(self, identity: Identity, *, loopback: bool) -> bool:
        """Everybody."""
        return True

    def stands(self, username: str | None, method: str) -> bool:
        """Everybody."""
        return True

    def is_superuser(self, username: str | None) -> bool:
        """Nobody."""
        return False

    def offers_enhanced(self, listener: str) -> bool:
        """All may."""
        return True

    def grant_without_login(self, method: str) -> object | None:
        """There are no grants."""
        return None

    async def renew(self, request: AuthRequest, identity: Identity) -> AuthResult:
        """Nobody knows."""
        return undecided(identity.method)


def accepted(
    method: str, username: str | None, *, superuser: bool = False, proof: object | None = None
) -> AuthResult:
    """The client is who it says."""
    return AuthResult(
        ok=True,
        reason_code=SUCCESS,
        username=username,
        superuser=superuser,
        method=method,
        proof=proof,
    )


def refused(
    method: str,
    reason_code: int,
    *,
    reason: str = "",
    limit: str = "",
    ban: LoginBan | None = None,
    delay_us: int = 0,
) -> AuthResult:
    """The client is turned away."""
    return AuthResult(
        ok=False,
        reason_code=reason_code,
        method=method,
        reason=reason,
        limit=limit,
        ban=ban,
        delay_us=delay_us,
    )


def undecided(method: str) -> AuthResult:
    """The request has nothing that the method can judge; counts as refused where it ends."""
    return AuthResult(ok=False, reason_code=NOT_AUTHORIZED, method=method, undecided=True)


@final
class AnonymousPolicy:
    """Clients without proved credentials: from this machine only, from everywhere, or never.

    A user name in the request is let pass but not believed: the result carries none.
    """

    __slots__ = ("mode",)

    def __init__(self, mode: AnonymousMode = "loopback") -> None:
        self.mode: AnonymousMode = mode

    async def authenticate(self, request: AuthRequest) -> AuthResult:
        """Accept the client as anonymous, or have no opinion."""
        if self.lets_in(loopback=request.loopback):
            return accepted(ANONYMOUS, None)
        return undecided(ANONYMOUS)

    def lets_in(self, *, loopback: bool) -> bool:
        """Whether a client without credentials may come."""
        return self.mode == "always" or (self.mode == "loopback" and loopback)


@final
class CertificateAuthenticator:
    """The common name of a verified client certificate is the user name.

    Args:
        listeners: names of the listeners on which certificates identify users.
        superusers: user names exempt from the ACL.
    """

    __slots__ = ("listeners", "superusers")

    def __init__(self, listeners: Iterable[str], *, superusers: Iterable[str] = ()) -> None:
        self.listeners = frozenset(listeners)
        self.superusers = frozenset(superusers)

    async def authenticate(self, request: AuthRequest) -> AuthResult:
        """Accept a certificate's subject; a listener of ours without one is refused.

        The TLS handshake has verified the certificate, so user name and password of the CONNECT
        packet are not looked at. A certificate without a common name identifies nobody.
        """
        if request.listener not in self.listeners:
            return undecided(CERTIFICATE)
        subject = request.certificate_subject
        if not subject:
            return refused(CERTIFICATE, NOT_AUTHORIZED, reason="no client certificate with a name")
        return accepted(CERTIFICATE, subject, superuser=subject in self.superusers)


@final
class Chain:
    """Asks its methods in order; the first one with an opinion decides.

    When none has one, a client that gave a user name hears 0x86, any other 0x87.
    """

    __slots__ = ("methods",)

    def __init__(self, methods: Sequence[Authenticator]) -> None:
        self.methods = tuple(methods)

    async def authenticate(self, request: AuthRequest) -> AuthResult:
        """Decide by the first method that can."""
        for method in self.methods:
            result = await method.authenticate(request)
            if not result.undecided:
                return result
        reason = NOT_AUTHORIZED if request.username is None else BAD_USERNAME_OR_PASSWORD
        return refused("none", reason, reason="no method of auth.chain knows such a client")


class AuthState(Enum):
    """Where an enhanced authentication exchange stands."""

    CONTINUE = "continue"
    """Send AUTH with 0x18 Continue authentication and wait for the client's AUTH."""
    DONE = "done"
    """Send CONNACK, or AUTH with 0x00 when the client is re-authenticating."""
    FAILED = "failed"
    """Send CONNACK, or DISCONNECT when re-authenticating, with the reason code, and close."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AuthStep:
    """The server's next move in an enhanced authentication exchange (section 4.12).

    Attributes:
        state: what to send.
        data: Authentication Data to send; None = no property.
        username: the proved user name, once done.
        superuser: exempt from the ACL, once done.
        proof: the entry of the credentials file that the client fitted, once done.
        reason_code: 0x18, 0x00, or that of the failure.
        reason: text for the log, never for the peer: it may tell a guesser too much.
        claimed: the user name that the client states, proved or not; empty = none yet.
    """

    state: AuthState
    data: bytes | None = None
    username: str | None = None
    superuser: bool = False
    proof: object | None = None
    reason_code: int = SUCCESS
    reason: str = ""
    claimed: str = ""


class EnhancedMethod(Protocol):
    """One exchange of one enhanced authentication method; used once, then dropped."""

    @property
    def name(self) -> str:
        """Authentication Method as in the property, such as ``SCRAM-SHA-256``."""
        ...

    def start(self, client_id: str, data: bytes | None) -> AuthStep:
        """Judge the Authentication Data of the CONNECT, or of the first re-authentication AUTH."""
        ...

    def step(self, data: bytes | None) -> AuthStep:
        """Judge the Authentication Data of the next AUTH packet."""
        ...


EnhancedFactory: TypeAlias = Callable[[str | None], EnhancedMethod]
"""Makes an exchange; the argument is the user name that it must prove, None = any."""


@final
class EnhancedMethods:
    """The enhanced authentication methods of a broker, by name."""

    __slots__ = ("_factories",)

    def __init__(self) -> None:
        self._factories: dict[str, EnhancedFactory] = {}

    def register(self, name: str, factory: EnhancedFactory) -> None:
        """Offer a method; a second one of the same name replaces the first (reload)."""
        self._factories[name] = factory

    def remove(self, name: str) -> None:
        """No longer offer a method."""
        self._factories.pop(name, None)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the methods on offer."""
        return tuple(self._factories)

    def begin(self, name: str, *, username: str | None = None) -> EnhancedMethod:
        """Make an exchange for a CONNECT.

        Args:
            name: the method of the CONNECT packet.
            username: the only user that it may prove, because a certificate names it already;
                None = any.

        Raises:
            MqttError: 0x8C, the method is not known [MQTT-4.12.0-1].
        """
        return self._make(name, username)

    def begin_again(
        self, name: str, *, connected_with: str, username: str | None
    ) -> EnhancedMethod:
        """Make an exchange for a re-authentication.

        Args:
            name: the method of the AUTH packet.
            connected_with: the method of the CONNECT packet; the same one has to be used again
                [MQTT-4.12.1-1].
            username: the user of the connection. The exchange has to prove the same one: a
                session, its will and its ACL decisions belong to that user.

        Raises:
            MqttError: 0x82, the method is another one than before.
        """
        if name != connected_with:
            raise MqttError(
                PROTOCOL_ERROR, "re-authentication must use the method of the CONNECT packet"
            )
        return self._make(name, username)

    def _make(self, name: str, username: str | None) -> EnhancedMethod:
        factory = self._factories.get(name)
        if factory is None:
            raise MqttError(BAD_AUTHENTICATION_METHOD, "authentication method not supported")
        return factory(username)
