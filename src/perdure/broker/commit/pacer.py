"""Whether commits keep a distance from each other: it is learned from what it does to the rate.

A commit costs much the same for one message as for fifty. Where messages come by themselves, one
after the other, a distance between commits gathers them and halves the broker's CPU. Where clients
wait for their acknowledgements before they send more, it gathers nothing: all that comes of it is
that they wait. From the messages alone the two look the same, so the other way is tried for a
moment every now and then, and kept if more messages come.

What counts is what came and what was delivered: a session that drains, and QoS 0, are slowed by the
distance too, since the broker lingers in it. It lingers where commits gather several messages.

It knows no clock: the time is an argument. Invariant: after an idle second there is no distance.
"""

from __future__ import annotations

from typing import Final, final

WINDOW_US: Final = 20_000
"""A rate is measured over so much time. With few messages in it chance decides, and then neither
way costs much."""

STAY_US: Final = 500_000
STAY_US_MAX: Final = 4_000_000
"""How long a way is kept before the other one is tried: twice as long each time that the other one
was found wanting. A trial takes two windows or more, of which the first is not counted, because
what was under way belongs to the way before."""

IDLE_US: Final = 1_000_000

GAIN: Final = 1.1
"""So many times the rate makes up for the CPU that commits without a distance take."""

CLEAR_GAIN: Final = 1.5
CONFIRM_MESSAGES: Final = 3_000
CONFIRM_WINDOWS: Final = 50
"""A gain below the first may be chance: the trial goes on for so many messages or windows."""

GATHERED_MIN: Final = 2
"""Messages that come in an interval where it pays to linger in it: fewer share nothing."""

_SMOOTH: Final = 0.1
"""Weight of the last window in the rate of the way that is kept."""


@final
class CommitPacer:
    """Learns whether commits should be spaced.

    Args:
        interval_us: the distance.
    """

    __slots__ = (
        "_came",
        "_decided_us",
        "_delivered",
        "_interval_us",
        "_last_us",
        "_rate",
        "_since_us",
        "_stay_us",
        "_trial",
        "_tried",
        "_tried_rate",
        "lingers",
        "spaced",
    )

    def __init__(self, interval_us: int) -> None:
        self._interval_us: int = interval_us
        self.spaced: bool = False
        """Whether the next commit keeps its distance from the last."""
        self.lingers: bool = False
        """Whether so much comes in this distance that it pays to do nothing else in it."""
        self._trial: int = 0
        """Windows that are left of a trial; 0 = none is under way."""
        self._tried: int = 0
        self._tried_rate: float = 0.0
        """Windows that a trial has counted, and their mean."""
        self._rate: float = 0.0
        """Messages per microsecond in the way that is kept; 0 = not measured yet."""
        self._came: int = 0
        self._delivered: int = 0
        """Messages delivered in all when the window began."""
        self._since_us: int = 0
        self._last_us: int = 0
        self._decided_us: int = 0
        self._stay_us: int = STAY_US

    def written(self, came: int, delivered: int, now_us: int) -> None:
        """A commit was written.

        Args:
            came: messages that waited for it.
            delivered: messages delivered so far, by all commits and without any.
            now_us: monotonic time.
        """
        if now_us - self._last_us > IDLE_US:
            self._begin(delivered, now_us)
        self._last_us = now_us
        self._came += came
        elapsed_us = now_us - self._since_us
        if elapsed_us < WINDOW_US:
            return
        rate = (self._came + delivered - self._delivered) / elapsed_us
        self.lingers = self._came * self._interval_us >= GATHERED_MIN * elapsed_us
        self._came = 0
        self._delivered = delivered
        self._since_us = now_us
        if self._trial > 1:
            self._trial -= 1
        elif self._trial == 1:
            self._decide(rate, now_us)
        elif not self._rate:
            self._rate = rate
        else:
            self._rate += (rate - self._rate) * _SMOOTH
        if not self._trial and now_us >= self._decided_us + self._stay_us:
            self.spaced = not self.spaced
            self._trial = 2
            self._tried = 0

    def _begin(self, delivered: int, now_us: int) -> None:
        """After a pause nothing of what was learned holds: a lone message must not wait."""
        self.spaced = False
        self.lingers = False
        self._trial = 0
        self._tried = 0
        self._rate = 0.0
        self._came = 0
        self._delivered = delivered
        self._since_us = now_us
        # Tried soon: as soon as there is a rate to compare with.
        self._decided_us = now_us - STAY_US
        self._stay_us = STAY_US

    def _decide(self, rate: float, now_us: int) -> None:
        """End a trial, unless it has to go on: ``rate`` is that of the way that is tried."""
        self._tried += 1
        rate = (self._tried_rate * (self._tried - 1) + rate) / self._tried
        self._tried_rate = rate
        spaced, close = (rate, self._rate) if self.spaced else (self._rate, rate)
        if (
            spaced * GAIN < close <= spaced * CLEAR_GAIN
            and self._tried < CONFIRM_WINDOWS
            and rate * self._tried * WINDOW_US < CONFIRM_MESSAGES
        ):
            return
        keeps = self.spaced == (close <= spaced * GAIN)
        if keeps:
            self._rate = rate
            self._stay_us = STAY_US
        else:
            self.spaced = not self.spaced
            self._stay_us = min(self._stay_us * 2, STAY_US_MAX)
        self._trial = 0
        self._decided_us = now_us
