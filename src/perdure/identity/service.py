"""Identity as the HTTP processes use it: who asks, and may it still.

Reads of the file are single rows of a cached page and run where they are asked for; what writes and
syncs runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar, final

from perdure.admin.problems import Refused
from perdure.admin.rights import Principal
from perdure.clock import Clock, SystemClock
from perdure.errors import StorageUnavailable
from perdure.identity import passwords
from perdure.identity.file import IdentityFile
from perdure.identity.keys import Keys
from perdure.identity.ledger import Actor, Ledger
from perdure.identity.logins import LoginLimits, Logins
from perdure.identity.proof import Proof
from perdure.identity.records import (
    PASSWORD_BYTES_MAX,
    User,
    check_name,
    check_password,
    check_role,
)
from perdure.identity.setup import Setup, used_link, void_link
from perdure.identity.throttle import Throttle
from perdure.identity.users import Users
from perdure.tokens import SharedStore

T = TypeVar("T")

LOGINS_FILE: Final = "logins.db"
LOGINS_LAYOUT: Final = "planned"
LOGINS_PREFIX: Final = "perdure-login"
"""Of the keys on Redis, where devices may have tokens of their own."""


@final
class Identity:
    """Opened with ``open``.

    Args:
        ledger: of the file.
        logins: of the same file.
        password_pool: checks passwords.
    """

    def __init__(
        self,
        ledger: Ledger,
        logins: Logins,
        *,
        password_pool: passwords.PasswordPool,
    ) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="identity")
        self._logins = logins
        self._pool = password_pool
        self.ledger = ledger
        self.login_total_s = logins.total_s
        self.users = Users(ledger)
        self.keys = Keys(ledger)
        self.setup = Setup(ledger)
        self._throttle = Throttle(ledger)
        self._decoy = ""

    @classmethod
    async def open(
        cls,
        directory: Path,
        *,
        login_store: str = "",
        limits: LoginLimits | None = None,
        clock: Clock | None = None,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> Identity:
        """Open the file and the store of logins.

        Args:
            directory: the data directory.
            login_store: a Redis URL; empty = a file beside ``identity.db``.
            limits: of a login.
            clock: tells the time.
            random_bytes: a source of secrets.

        Raises:
            StorageError, ConfigError: the file cannot be opened, or the store cannot be used. A
                store whose server is away is asked again when somebody logs in.
        """
        ledger = Ledger(IdentityFile(directory), clock or SystemClock(), random_bytes=random_bytes)
        store = SharedStore(
            login_store or str(directory / LOGINS_FILE),
            layout=LOGINS_LAYOUT,
            prefix=LOGINS_PREFIX if login_store else "",
        )
        try:
            # What is wrong with the settings is told at the start; who is away is asked again.
            with contextlib.suppress(StorageUnavailable):
                await store.get(ledger.clock.now_us() // 1_000_000)
        except BaseException:
            ledger.file.close()
            raise
        logins = Logins(store, ledger, limits or LoginLimits())
        return cls(ledger, logins, password_pool=passwords.PasswordPool())

    async def change(self, work: Callable[[], T]) -> T:
        """Run what writes the file."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def close(self) -> None:
        """Let go of files, threads and connections."""
        self._pool.close()
        self._thread.shutdown()
        await self._logins.close()
        self.ledger.file.close()

    # -- who asks ----------------------------------------------------------------------------

    async def of_login(
        self, presented: str, *, peer: str = "", prolongs: bool = True
    ) -> Proof | None:
        """Who presents a login, if it holds.

        Args:
            presented: by the client.
            peer: its address.
            prolongs: see ``Logins.find``.
        """
        login = await self._logins.find(presented, prolongs=prolongs)
        user = None if login is None else self.users.find(login.name)
        if login is None or user is None or user.generation != login.generation:
            return None
        return Proof(
            Principal(user.name, user.role, source="session", peer=peer),
            login=login.digest,
            generation=login.generation,
            until_s=login.until_s,
        )

    async def of_key(self, presented: str, *, peer: str = "") -> Proof | None:
        """Who presents an API key, if it holds."""
        key = await self.change(functools.partial(self.keys.find, presented))
        if key is None:
            return None
        return Proof(Principal(key.id, key.role, key.scopes, "api_key", peer, key.topic_filters))

    def holds(self, proof: Proof) -> bool:
        """Whether somebody may still what they might when they came; asked of what stays open."""
        principal = proof.principal
        if principal.source == "session":
            user = self.users.find(principal.name)
            return (
                user is not None
                and (user.role, user.generation) == (principal.role, proof.generation)
                and self.ledger.clock.now_us() // 1_000_000 < proof.until_s
                and not self._logins.has_ended(proof.login)
            )
        if principal.source == "api_key":
            return self.keys.holds(principal.name) is not None
        return True

    # -- logins ------------------------------------------------------------------------------

    async def login(self, name: str, password: str, actor: Actor) -> tuple[str, User]:
        """Log in with a password.

        Args:
            name: user name.
            password: as typed.
            actor: who seems to ask, from where.

        Returns:
            What is presented from now on, and the user.

        Raises:
            Refused: the name or the password is wrong, or it was tried too often.
        """
        address = actor.principal.peer
        await self.change(functools.partial(self._throttle.charge, name, address))
        text = self.users.password_of(name)
        is_known = bool(text)
        if not is_known:
            # As slow as for a user that there is.
            text = self._decoy or await self._pool.run(
                functools.partial(passwords.hash_password, secrets.token_hex())
            )
            self._decoy = text
        fitting = len(password.encode()) <= PASSWORD_BYTES_MAX and await self._pool.run(
            functools.partial(passwords.fits, text, password)
        )
        user = self.users.find(name)
        if not is_known or not fitting or user is None:
            raise Refused("unauthorized", "the name or the password is wrong")
        newer = ""
        if passwords.is_dated(text):
            newer = await self._pool.run(functools.partial(passwords.hash_password, password))
        await self.change(functools.partial(self._throttle.clear, name, address))
        presented = await self._logins.begin(user)
        await self.change(functools.partial(self.users.logged_in, name, actor, password_text=newer))
        return presented, user

    async def logout(self, presented: str) -> None:
        """End one login."""
        await self.change(functools.partial(self._logins.note_end, presented))
        await self._logins.forget(presented)

    async def redeem(self, token: str, name: str, password: str, actor: Actor) -> tuple[str, User]:
        """Make the first administrator with a setup token, and log them in.

        Raises:
            Refused: a part cannot be taken, or the token does not hold.
        """
        if not self.users.is_empty():
            raise used_link()
        if not self.setup.holds(token):
            raise void_link()
        text = await self.password_text(check_name(name), password)
        user = await self.change(functools.partial(self.setup.redeem, token, name, text, actor))
        found = self.users.find(name) or user
        return await self._logins.begin(found), found

    # -- changes that need a hash ------------------------------------------------------------

    async def password_text(self, name: str, password: str) -> str:
        """What is kept of a password.

        Raises:
            Refused: it cannot be taken, or too many are being hashed.
        """
        check_password(password, name=name)
        return await self._pool.run(functools.partial(passwords.hash_password, password))

    async def add_user(self, name: str, role: str, password: str, actor: Actor) -> User:
        """See ``Users.add``."""
        check_name(name)
        check_role(role)
        text = await self.password_text(name, password)
        return await self.change(functools.partial(self.users.add, name, role, text, actor))

    async def set_password(self, name: str, password: str, actor: Actor) -> User:
        """See ``Users.set_password``."""
        text = await self.password_text(name, password)
        return await self.change(functools.partial(self.users.set_password, name, text, actor))

    async def maintain(self) -> None:
        """Remove logins that have expired."""
        await self._logins.maintain()
