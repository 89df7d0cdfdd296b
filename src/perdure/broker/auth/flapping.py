"""Client identifiers whose connections come and go too often. Pure: time is an argument.

Two clients with one identifier take the session from each other as fast as they can connect, and
each takeover costs a commit. What is counted is a takeover and a connection that ends without
DISCONNECT; a client that connects, works and says goodbye may do so as often as it likes. Only
who was let in and may have the session is counted, so a stranger cannot have an identifier
banned.

While an identifier is banned its new connections are refused, before any password is looked at.
The connection that has the session keeps it: of two that fight, one can work.

Invariant: the table is bounded; what is forgotten first is what has flapped longest ago.
"""

from __future__ import annotations

from typing import Final, final

from perdure.broker.auth.remembered import remembered
from perdure.config.schema import LimitsConfig

TRACKED_MAX: Final = 10_000
"""Client identifiers with a recent takeover or cut; about 250 bytes each."""

LIMIT: Final = "limits.flapping_max"


@final
class _Flaps:
    """What one client identifier has done within a window."""

    __slots__ = ("count", "since_us")

    def __init__(self, since_us: int) -> None:
        self.count: int = 0
        self.since_us: int = since_us


@final
class FlappingBan:
    """A temporary ban of a client identifier.

    Attributes:
        client_id: whose.
        flaps: how many it took.
        since_us, until_us: monotonic times at which it began and ends.
    """

    __slots__ = ("client_id", "flaps", "since_us", "until_us")

    def __init__(self, client_id: str, *, flaps: int, since_us: int, until_us: int) -> None:
        self.client_id: str = client_id
        self.flaps: int = flaps
        self.since_us: int = since_us
        self.until_us: int = until_us


@final
class Flapping:
    """Counts takeovers and cut connections, and bans identifiers that have too many."""

    __slots__ = ("_bans", "_flaps")

    def __init__(self) -> None:
        self._flaps: dict[str, _Flaps] = {}
        self._bans: dict[str, FlappingBan] = {}

    def refuses(self, client_id: str, now_us: int) -> bool:
        """Whether a client identifier may not connect now."""
        if not self._bans:
            return False
        client_id = remembered(client_id)
        ban = self._bans.get(client_id)
        if ban is None:
            return False
        if now_us < ban.until_us:
            return True
        del self._bans[client_id]
        return False

    def flapped(self, client_id: str, config: LimitsConfig, now_us: int) -> FlappingBan | None:
        """Count a takeover or a cut connection.

        Returns:
            The ban that this brings, if it does.
        """
        if not config.flapping_max:
            return None
        client_id = remembered(client_id)
        flaps = self._flaps.pop(client_id, None)
        if flaps is None or now_us - flaps.since_us >= config.flapping_window_s * 1_000_000:
            flaps = _Flaps(now_us)
        flaps.count += 1
        if flaps.count < config.flapping_max:
            if len(self._flaps) >= TRACKED_MAX:
                del self._flaps[next(iter(self._flaps))]
            self._flaps[client_id] = flaps
            return None
        if len(self._bans) >= TRACKED_MAX:
            del self._bans[next(iter(self._bans))]
        ban = self._bans[client_id] = FlappingBan(
            client_id,
            flaps=flaps.count,
            since_us=now_us,
            until_us=now_us + config.flapping_ban_s * 1_000_000,
        )
        return ban

    def bans(self, now_us: int) -> list[FlappingBan]:
        """The bans in force; those that are over are forgotten."""
        for client_id in [name for name, ban in self._bans.items() if ban.until_us <= now_us]:
            del self._bans[client_id]
        return list(self._bans.values())

    def lift(self, client_id: str) -> bool:
        """Take a ban back."""
        return self._bans.pop(remembered(client_id), None) is not None
