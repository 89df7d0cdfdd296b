"""What bans do to the clients of a broker: those that come, and those that are here.

A banned client is refused at CONNECT (0x8A, in 3.1.1 return code 5). When a ban is added, every
client that it means is disconnected at once, and gone without its will: what it has to say is not
wanted. As long as a client identifier is banned, what it published before is not delivered to
anybody any more, from queues, retained messages or the log.

Knows nothing of files: whoever has changed a list hands over the new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from perdure.broker.auth.bans import Ban, BanList
from perdure.errors import MqttError
from perdure.mqtt.reason_codes import ADMINISTRATIVE_ACTION, BANNED

if TYPE_CHECKING:
    from perdure.broker.connection import Connection
    from perdure.broker.scheduler import Timer
    from perdure.broker.services import Services

WAIT_MAX_US: Final = 3_600_000_000
"""Longest wait for the end of a ban: a wall clock may be set meanwhile."""


@final
class Banning:
    """Keeps banned clients out.

    Args:
        services: the parts of the broker.
        bans: in force from the start.

    Attributes:
        bans: in force now.
        version: grows with each new list.
    """

    def __init__(self, services: Services, bans: BanList) -> None:
        self._services = services
        self.bans = bans
        self.version: int = 0
        self._timer: Timer | None = None

    def start(self) -> None:
        """Enforce what is banned."""
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
        self.bans = bans
        self.version += 1
        self._enforce()
        return self._close_banned()

    def check(self, connection: Connection, client_id: str, username: str | None) -> None:
        """Refuse a client that is banned.

        Raises:
            MqttError: 0x8A. The reason of the ban is for operators alone.
        """
        if self.refuses(connection, client_id, username):
            raise MqttError(BANNED, "banned")

    def refuses(self, connection: Connection, client_id: str, username: str | None) -> bool:
        """Whether a client is banned; the log says why."""
        services = self._services
        address = connection.peer.address
        ban = self.bans.find(
            client_id=client_id,
            username=username,
            address=address,
            now_us=services.clock.now_us(),
        )
        if ban is not None:
            services.log.warning(
                "connection.refused",
                client_id=client_id,
                address=address,
                username=username,
                reason_code=BANNED,
                **_about(ban),
            )
        return ban is not None

    def mutes(self, client_id: str) -> bool:
        """Whether nothing of what a client has published may be delivered."""
        return self._services.authorizer.mutes(client_id)

    def _enforce(self) -> None:
        """Tell the authorizer, and look again when the next ban ends."""
        services = self._services
        now_us = services.clock.now_us()
        services.authorizer.mute(self.bans.client_ids(now_us))
        services.metrics.bans = self.bans.in_force(now_us)
        self.stop()
        end_us = self.bans.next_end_us(now_us)
        if end_us:
            wait_us = min(end_us - now_us, WAIT_MAX_US)
            self._timer = services.scheduler.call_later(wait_us, self._enforce)

    def _close_banned(self) -> int:
        services = self._services
        services.turn.now_us = now_us = services.clock.now_us()
        count = 0
        for session in list(services.registry.live.values()):
            address = session.holder.peer.address
            ban = self.bans.find(
                client_id=session.client_id,
                username=session.identity.username,
                address=address,
                now_us=now_us,
            )
            if ban is None:
                continue
            count += 1
            services.log.warning(
                "client.banned", client_id=session.client_id, address=address, **_about(ban)
            )
            # 0x8A is for CONNACK alone [MQTT-3.14.2-1].
            session.holder.disconnect(ADMINISTRATIVE_ACTION, "banned", send_will=False)
        if count:
            services.turn.run()
        return count


def _about(ban: Ban) -> dict[str, str]:
    return {"banned": f"{ban.kind} {ban.value}", "reason": ban.reason}
