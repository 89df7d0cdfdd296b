"""Authentication and authorisation as one configured whole, which can be reloaded.

Joins the methods in the order of ``auth.chain``, for each listener that has a chain of its own too.
Knows the ``auth`` section of the configuration and nothing of the rest.

Invariant: a reload happens whole or not at all. The files are read first, by ``read_files``;
an error there leaves what was in force in force.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import msgspec

from perdure.broker.auth.acl import AclAuthorizer
from perdure.broker.auth.acl_rules import AclRules
from perdure.broker.auth.authenticate import (
    ANONYMOUS,
    CERTIFICATE,
    AnonymousPolicy,
    Authenticator,
    AuthRequest,
    AuthResult,
    CertificateAuthenticator,
    Chain,
    EnhancedMethods,
    undecided,
)
from perdure.broker.auth.authorize import Identity
from perdure.broker.auth.credentials import CredentialsFile
from perdure.broker.auth.grant import EVERYTHING
from perdure.broker.auth.guard import LoginGuard
from perdure.broker.auth.guarded import GuardedMethod
from perdure.broker.auth.passwords import METHOD as PASSWORD
from perdure.broker.auth.passwords import PasswordAuthenticator
from perdure.broker.auth.scram import NAME as SCRAM_SHA_256
from perdure.broker.auth.scram import scram_factory
from perdure.config.schema import AuthConfig

NONCE_BYTES: Final = 18
"""Random bytes in the server's part of a SCRAM nonce: 24 characters."""

CACHE_KEY_BYTES: Final = 32


@final
@dataclass(frozen=True, slots=True)
class AccessFiles:
    """The files that the ``auth`` section names, read and checked."""

    credentials: CredentialsFile | None
    rules: AclRules | None


def read_files(config: AuthConfig) -> AccessFiles:
    """Read the files that the section names; large ones take a while, so use a thread.

    Raises:
        ConfigError: a file cannot be read or has a wrong line.
    """
    return AccessFiles(
        CredentialsFile.load(config.password_file) if config.password_file else None,
        AclRules.load(config.acl_file) if config.acl_file else None,
    )


@final
class _KnownUsers:
    """Passwords of the users that the file has; others are left to the next method.

    Whoever asks can tell by the time that a name is not in the file. That the next method asks
    somebody else tells it anyway.
    """

    __slots__ = ("_passwords",)

    def __init__(self, passwords: PasswordAuthenticator) -> None:
        self._passwords = passwords

    async def authenticate(self, request: AuthRequest) -> AuthResult:
        """Decide on a user that is in the file."""
        if request.username is None or request.username not in self._passwords.credentials:
            return undecided(PASSWORD)
        return await self._passwords.authenticate(request)


@final
class AccessControl:
    """The authenticator, the enhanced methods and the authorizer of a broker.

    Args:
        config: the ``auth`` section.
        files: what ``read_files`` made of it.
        certificate_listeners: listeners on which a client certificate's common name is the user.
        random_bytes: such as ``secrets.token_bytes``.
        decoy_key: secret of this broker that outlives a restart, see
            ``credentials.load_or_create_key``.
        guard: counts failures; None = one of its own.
        methods: those that are not the broker's own, by name; chains name no others.
        listener_chains: of the listeners that have one of their own.

    Attributes:
        authorizer: stays the same object through a reload.
        guard: stays the same object through a reload, with what it has counted.
        methods: stays the same object through a reload.
    """

    def __init__(
        self,
        config: AuthConfig,
        files: AccessFiles,
        *,
        certificate_listeners: Iterable[str] = (),
        random_bytes: Callable[[int], bytes],
        decoy_key: bytes,
        guard: LoginGuard | None = None,
        methods: Mapping[str, GuardedMethod] | None = None,
        listener_chains: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._others = dict(methods or {})
        self._listener_chains = dict(listener_chains or {})
        self.authorizer = AclAuthorizer(
            files.rules, cache_bytes=config.acl_cache_bytes, grants=bool(self._others)
        )
        self.rules: AclRules | None = files.rules
        """Of the ACL file in force; None = there is none."""
        self.guard = guard or LoginGuard(config)
        self.methods = EnhancedMethods()
        self._certificate_listeners = frozenset(certificate_listeners)
        self._random_bytes = random_bytes
        self._decoy_key = decoy_key
        self._passwords: PasswordAuthenticator | None = None
        self._credentials: CredentialsFile | None = None
        self._anonymous = AnonymousPolicy(config.allow_anonymous)
        self._superusers: frozenset[str] = frozenset()
        self._chain = Chain(())
        self._chain_names = tuple(config.chain)
        self._chains: dict[str, Chain] = {}
        self._use(config, files.credentials)

    async def authenticate(self, request: AuthRequest) -> AuthResult:
        """Decide on the credentials of a CONNECT without an Authentication Method."""
        chain = self._chains.get(request.listener, self._chain)
        result = await chain.authenticate(request)
        if result.ok and not result.superuser and self.is_superuser(result.username):
            return msgspec.structs.replace(result, superuser=True)
        return result

    async def renew(self, request: AuthRequest, identity: Identity) -> AuthResult:
        """Ask the method that has let a client in whether it still may be there."""
        method = self._others.get(identity.method)
        if method is None:
            return undecided(identity.method)
        return await method.renew(request, identity.proof)

    def offers_enhanced(self, listener: str) -> bool:
        """Whether a listener's clients may prove a user of the password file by SCRAM."""
        return PASSWORD in self._listener_chains.get(listener, self._chain_names)

    def grant_without_login(self, method: str) -> object | None:
        """Rights of a client that a method has let in were checked when its login was there: a
        will at CONNECT. What the ACL file denies stays denied."""
        return EVERYTHING if method in self._others else None

    def is_superuser(self, username: str | None) -> bool:
        """Whether a proved user is exempt from the ACL, as of now."""
        return username is not None and username in self._superusers

    @property
    def credentials(self) -> CredentialsFile | None:
        """The credentials file as it is in force; None = there is none."""
        return self._credentials

    def takes_certificates(self, listener: str) -> bool:
        """Whether a client certificate is the user's name on a listener."""
        return listener in self._certificate_listeners

    def keeps(self, identity: Identity, *, loopback: bool) -> bool:
        """Whether a client that was let in would be let in again: its user is still there, with
        the entry that it fitted, or anonymous clients still may come."""
        if identity.method in self._others:
            return True  # ``renew`` tells, and its own time
        if identity.username is None:
            return self._anonymous.lets_in(loopback=loopback)
        if identity.proof is None or self._credentials is None:
            return self.stands(identity.username, identity.method)
        return identity.proof in self._credentials.entries(identity.username)

    def stands(self, username: str | None, method: str) -> bool:
        """Whether such a user may still be there, as far as its name and method tell.

        Args:
            username: as it was proved; None = anonymous.
            method: what proved it; empty = nobody knows.
        """
        if not method or method == CERTIFICATE or method in self._others:
            return True
        if username is None:
            return self._anonymous.lets_in(loopback=True)
        return self._credentials is not None and username in self._credentials

    def reload(self, config: AuthConfig, files: AccessFiles) -> None:
        """Use other settings from now on; who may not stay is for the caller to close.

        The threads of password checks are fixed while there is a password file.
        """
        self.guard.config = config
        self._use(config, files.credentials)
        self.rules = files.rules
        self.authorizer.reload(files.rules, cache_bytes=config.acl_cache_bytes)

    def close(self) -> None:
        """Stop the threads."""
        if self._passwords is not None:
            self._passwords.close()

    def _use(self, config: AuthConfig, credentials: CredentialsFile | None) -> None:
        superusers = self._superusers = frozenset(config.superusers)
        self._credentials = credentials
        self._anonymous = AnonymousPolicy(config.allow_anonymous)
        if credentials is None:
            if self._passwords is not None:
                self._passwords.close()
            self._passwords = None
        elif self._passwords is None:
            self._passwords = PasswordAuthenticator(
                credentials,
                cache_key=self._random_bytes(CACHE_KEY_BYTES),
                guard=self.guard,
                threads=config.verify_threads,
                cache_max=config.verify_cache_max,
                superusers=superusers,
            )
        else:
            self._passwords.reload(credentials, superusers=superusers)
        if self._passwords is not None:
            queue = self._passwords.queue
            queue.total_max = config.verify_queue_max
            queue.address_max = config.verify_pending_per_address_max
            queue.user_max = config.verify_pending_per_user_max
        certificates = CertificateAuthenticator(self._certificate_listeners, superusers=superusers)
        self._chain = self._make_chain(self._chain_names, certificates)
        self._chains = {
            listener: self._make_chain(names, certificates)
            for listener, names in self._listener_chains.items()
        }
        # Offered only if someone can use it: a client that may choose should choose what works.
        if credentials is not None and credentials.has_scram():
            factory = scram_factory(
                credentials,
                nonce=self._nonce,
                decoy_key=self._decoy_key,
                decoy_iterations=credentials.scram_iterations(),
                superusers=superusers,
            )
            self.methods.register(SCRAM_SHA_256, factory)
        else:
            self.methods.remove(SCRAM_SHA_256)

    def _make_chain(self, names: Sequence[str], certificates: Authenticator) -> Chain:
        methods: list[Authenticator] = []
        for index, name in enumerate(names):
            if name == CERTIFICATE:
                methods.append(certificates)
            elif name == ANONYMOUS:
                methods.append(self._anonymous)
            elif name != PASSWORD:
                methods.append(self._others[name])
            elif self._passwords is not None:
                is_last = not any(later in self._others for later in names[index + 1 :])
                methods.append(self._passwords if is_last else _KnownUsers(self._passwords))
        return Chain(methods)

    def _nonce(self) -> str:
        return base64.b64encode(self._random_bytes(NONCE_BYTES)).decode()
