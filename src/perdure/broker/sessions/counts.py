"""How many sessions there are, in all and of each user, and whether there may be another.

Counts change as sessions come and go; only the start of a broker, and the return of a store that
had failed, go through the records. A record has the number of its subscriptions, so those of
sessions that are not connected need no look at them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from perdure.limits import WILL_BYTES_FREE
from perdure.model import SessionRecord, Will

if TYPE_CHECKING:
    from perdure.config.schema import LimitsConfig
    from perdure.observe.metrics import Metrics


@final
class Tally:
    """A count from the records.

    Attributes:
        sessions: all of them.
        by_user: of each user.
        subscriptions_offline: of those that are not connected here.
    """

    def __init__(self) -> None:
        self.sessions: int = 0
        self.by_user: dict[str, int] = {}
        self.subscriptions_offline: int = 0

    def add(self, record: SessionRecord, *, is_live: bool) -> None:
        """Count a stored session; ``is_live``: it is connected here."""
        self.sessions += 1
        self.by_user[record.username] = self.by_user.get(record.username, 0) + 1
        if not is_live:
            self.subscriptions_offline += record.subscription_count


def will_size(will: Will | None) -> int:
    """Bytes of a will that ``limits.will_bytes_max`` bounds: what is beyond the first KiB."""
    if will is None:
        return 0
    size = len(will.topic) + len(will.payload) + len(will.properties)
    return max(0, size - WILL_BYTES_FREE)


@final
class SessionCounts:
    """Counts sessions.

    Args:
        metrics: has the numbers that are seen from outside too.

    Attributes:
        sessions: connected or stored.
        will_bytes: of the wills of those that are connected, as ``will_size`` counts them.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.sessions: int = 0
        self.will_bytes: int = 0
        self._by_user: dict[str, int] = {}

    def clear(self) -> None:
        """Count anew."""
        self.sessions = 0
        self._by_user = {}
        self._metrics.subscriptions_offline = 0

    def take(self, tally: Tally) -> None:
        """Go on from what was counted anew."""
        self.sessions = tally.sessions
        self._by_user = tally.by_user
        self._metrics.subscriptions_offline = tally.subscriptions_offline

    def of_user(self, username: str) -> int:
        """Sessions of a user; empty = of all anonymous clients."""
        return self._by_user.get(username, 0)

    def added(self, username: str) -> None:
        """There is one session more."""
        self.sessions += 1
        self._by_user[username] = self._by_user.get(username, 0) + 1

    def removed(self, username: str) -> None:
        """There is one session less."""
        self.sessions -= 1
        count = self._by_user.get(username, 0) - 1
        if count > 0:
            self._by_user[username] = count
        else:
            self._by_user.pop(username, None)

    def found(self, record: SessionRecord) -> None:
        """A stored session that is not connected."""
        self.added(record.username)
        self._metrics.subscriptions_offline += record.subscription_count

    def gone(self, record: SessionRecord) -> None:
        """A stored session that was not connected is discarded, or is connected now.

        One that another node has made may not be counted here yet (``cluster.survey``).
        """
        self.removed(record.username)
        metrics = self._metrics
        metrics.sessions_offline = max(0, metrics.sessions_offline - 1)
        metrics.subscriptions_offline = max(
            0, metrics.subscriptions_offline - record.subscription_count
        )

    def refusal(self, username: str, limits: LimitsConfig) -> str:
        """The setting that leaves no room for a new session of a user; empty = there is room."""
        if limits.sessions_max and self.sessions >= limits.sessions_max:
            return "limits.sessions_max"
        most = limits.sessions_per_user_max
        if most and self.of_user(username) >= most:
            return "limits.sessions_per_user_max"
        return ""
