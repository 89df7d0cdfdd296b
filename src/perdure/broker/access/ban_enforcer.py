"""What bans do to the clients of a broker: those that come, and those that are here.

A banned client is refused at CONNECT (0x8A, in 3.1.1 return code 5). When a ban is added, every
client that it means is disconnected at once, and gone without its will: what it has to say is not
wanted. As long as a client identifier is banned, what it published before is not delivered to
anybody any more, from queues, retained messages or the log. A message names no user: of a banned
user, what is muted are the identifiers of the sessions that belong to it.

Knows nothing of files: whoever has changed a list hands over the new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

from perdure.broker.auth.bans import Ban, BanList, TemporaryBan
from perdure.errors import MqttError, StorageError
from perdure.model import SessionRecord
from perdure.mqtt.reason_codes import ADMINISTRATIVE_ACTION, BANNED

if TYPE_CHECKING:
    from perdure.broker.auth.guard import LoginBan
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.registry import Registry
    from perdure.broker.runtime.scheduler import Timer
    from perdure.broker.runtime.stream import PeerInfo

WAIT_MAX_US: Final = 3_600_000_000
"""Longest wait for the end of a ban."""

SESSIONS_PER_STEP: Final = 64
"""Stored sessions looked at before others have their turn."""


class IncomingConnection(Protocol):
    """A connection whose client may be banned."""

    about: dict[str, str] | None
    """What the log may know of its refusal and the client may not."""
    peer: PeerInfo


@final
class BanEnforcer:
    """Keeps banned clients out.

    Args:
        core: what every part stands on.
        bans: in force from the start.
        registry: what else it uses.

    Attributes:
        bans: in force now.
        version: grows with each new list.
    """

    def __init__(self, core: BrokerCore, bans: BanList, *, registry: Registry) -> None:
        self._core = core
        self._registry: Registry = registry
        self.bans = bans
        self.version: int = 0
        self._users: frozenset[str] = bans.usernames()
        self._of_users: dict[str, str] = {}
        """Client identifiers of sessions that belong to them, and to which."""
        self._timer: Timer | None = None
        self._skew_us: int = 0
        """What the wall clock was ahead of the broker's when the list came: bans end by the wall,
        but none ends sooner or later because that is set meanwhile."""

    def start(self) -> None:
        """Enforce what is banned."""
        self._skew_us = self._core.clock.skew_us
        self._enforce()

    def stop(self) -> None:
        """Wait for no ban's end any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def use(self, bans: BanList) -> int:
        """Have other bans from now on.

        Returns:
            Clients that were disconnected.
        """
        core = self._core
        self.bans = bans
        self.version += 1
        users = self._users = bans.usernames()
        self._of_users = {name: user for name, user in self._of_users.items() if user in users}
        if users:
            for session in self._registry.live.values():
                self.found(session.record)
            core.scheduler.spawn(self._find_sessions(self.version), name="bans")
        self._skew_us = self._core.clock.skew_us
        self._enforce()
        return self._close_banned()

    def found(self, record: SessionRecord) -> None:
        """Learn of a session, and to whom it belongs."""
        if record.username in self._users:
            self._of_users[record.client_id] = record.username

    def belongs(self, record: SessionRecord) -> None:
        """A session was opened, or given to somebody: its client identifier is that user's now."""
        of_users = self._of_users
        if of_users and of_users.get(record.client_id, record.username) != record.username:
            del of_users[record.client_id]
            self._enforce()

    def check(self, connection: IncomingConnection, client_id: str, username: str | None) -> None:
        """Refuse a client that is banned.

        Raises:
            MqttError: 0x8A. The reason of the ban is for operators alone.
        """
        if self.refuses(connection, client_id, username):
            raise MqttError(BANNED, "banned")

    def refuses(self, connection: IncomingConnection, client_id: str, username: str | None) -> bool:
        """Whether a client is banned; the line of its refusal says why."""
        address = connection.peer.address
        ban = self.bans.find(
            client_id=client_id,
            username=username,
            address=address,
            now_us=self.now_us(),
        )
        if ban is not None:
            connection.about = _about(ban)
        return ban is not None

    def login_banned(self, ban: LoginBan | None) -> None:
        """Too many failed logins have brought a temporary ban; None = they have not."""
        if ban is not None:
            self._core.log.warning(
                "login.banned",
                username=ban.username,
                address=ban.address,
                failures=ban.failures,
                limit=ban.limit,
                seconds=(ban.until_us - ban.since_us) // 1_000_000,
            )

    def flapped(self, client_id: str) -> None:
        """A client identifier was taken over, or has lost its connection."""
        core = self._core
        now_us = core.clock.monotonic_us()
        ban = core.flapping.flapped(client_id, core.limits_config, now_us)
        if ban is not None:
            core.log.warning(
                "client.flapping",
                client_id=client_id,
                flaps=ban.flaps,
                seconds=(ban.until_us - ban.since_us) // 1_000_000,
                hint="two clients with one client identifier, or one that cannot hold a connection",
            )

    def temporary(self) -> list[TemporaryBan]:
        """The bans that the broker has made by itself and that are in force."""
        core = self._core
        now_us = core.clock.monotonic_us()
        shift_us = core.clock.wall_us() - now_us
        found = [
            TemporaryBan(
                "login",
                login.value,
                f"{login.failures} failed logins",
                login.since_us + shift_us,
                login.until_us + shift_us,
            )
            for login in core.guard.bans(now_us)
        ]
        found += [
            TemporaryBan(
                "client_id",
                flapping.client_id,
                f"flapping: {flapping.flaps} takeovers or lost connections",
                flapping.since_us + shift_us,
                flapping.until_us + shift_us,
            )
            for flapping in core.flapping.bans(now_us)
        ]
        return found

    def lift(self, kind: str, value: str) -> bool:
        """Take a temporary ban back; returns whether there was one."""
        core = self._core
        if kind == "login":
            return core.guard.lift(value)
        return kind == "client_id" and core.flapping.lift(value)

    def bans_user(self, username: str | None) -> bool:
        """Whether a user name is banned, wherever its clients are."""
        if username is None:
            return False
        ban = self.bans.get("username", username)
        return ban is not None and not ban.is_over(self.now_us())

    def mutes(self, client_id: str) -> bool:
        """Whether nothing of what a client has published may be delivered."""
        return self._core.authorizer.mutes(client_id)

    def _enforce(self) -> None:
        """Tell the authorizer, and look again when the next ban ends."""
        core = self._core
        now_us = self.now_us()
        muted = self.bans.client_ids(now_us)
        if self._of_users:
            muted |= {name for name, user in self._of_users.items() if self.bans_user(user)}
        core.authorizer.mute(muted)
        core.metrics.bans = self.bans.in_force(now_us)
        self.stop()
        end_us = self.bans.next_end_us(now_us)
        if end_us:
            wait_us = min(end_us - now_us, WAIT_MAX_US)
            self._timer = core.scheduler.call_later(wait_us, self._enforce)

    async def _find_sessions(self, version: int) -> None:
        """Mute the stored sessions of users that are banned since a version of the list."""
        core = self._core
        count = 0
        try:
            async for record in core.database.sessions():
                count += 1
                if count % SESSIONS_PER_STEP == 0:
                    await core.turn_budget.step(self)
                if version != self.version:
                    return
                self.found(record)
        except StorageError as error:
            # When the store is there again, its sessions are gone through anyway.
            core.read_failed(error)
        if version == self.version:
            self._enforce()
            self._withdraw()

    def _withdraw(self) -> None:
        """Take out what waits in memory for connected clients and may not be delivered."""
        core = self._core
        core.pipeline.now_us = core.clock.now_us()
        for session in list(self._registry.live.values()):
            session.withdraw_pending()
        core.pipeline.run()

    def now_us(self) -> int:
        """The time by which bans end."""
        return self._core.clock.now_us() + self._skew_us

    def _close_banned(self) -> int:
        core = self._core
        core.pipeline.now_us = core.clock.now_us()
        now_us = self.now_us()
        count = 0
        for session in list(self._registry.live.values()):
            address = session.connection.peer.address
            ban = self.bans.find(
                client_id=session.client_id,
                username=session.identity.username,
                address=address,
                now_us=now_us,
            )
            if ban is None:
                continue
            count += 1
            core.log.warning(
                "client.banned", client_id=session.client_id, address=address, **_about(ban)
            )
            # 0x8A is for CONNACK alone [MQTT-3.14.2-1].
            session.connection.disconnect(ADMINISTRATIVE_ACTION, "banned", send_will=False)
        self._withdraw()
        return count


def _about(ban: Ban) -> dict[str, str]:
    return {"banned": f"{ban.kind} {ban.value}", "reason": ban.reason}
