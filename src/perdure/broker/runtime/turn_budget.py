"""Whose turn it is: work that clients have left when their share of a turn is used up.

What a client sends is processed in slices (``SLICE``). Whoever has more waits here, and is given
another slice when those before it had theirs; all of them together have ``LEFTOVER_US`` of each
turn of the event loop. So a client may send as fast as it likes, and the others do not see it.

Long work of one packet (thousands of topic filters) is done by a coroutine that waits here for
each of its steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, final

from perdure.broker.runtime.scheduler import Gate

if TYPE_CHECKING:
    from perdure.clock import Clock

SLICE: Final = 512
"""Units of work (``mqtt.decode``) of one connection at a time: most reads are less."""

LEFTOVER_US: Final = 2_000
"""Time in one turn of the loop for all that is left over, microseconds."""
BULK_BYTES: Final = 8 * 1024
"""What is longer than this joins the queue at once while there is one: thirty clients that flood
would otherwise have thirty slices in one turn, beside those that are given out here."""
BEGUN_MAX: Final = 8
"""Clients whose first packet is processed in one turn, as it comes: a session that is opened takes
as long as fifty messages, and a thousand clients may come back at once. The others join the
queue."""
SLICES_MAX: Final = 64
"""Slices in one turn, whatever the clock says."""
GONE_MAX: Final = 64
"""Those in front that are closed and leave the queues in a turn: each leaves behind what takes some
10 us to free."""
STEPS_MAX: Final = 4
"""Steps of long packets in one turn. They run after this, so that no clock measures them."""


FAN_SHIFT: Final = 2
"""A delivery to one of several subscribers is a quarter of a unit of work, beyond the PUBLISH."""
SLICE_MIN: Final = 32
"""Units of work in a slice of who publishes to many: what each of them is sent in a turn is one
write, which costs as much as some messages."""
WIDE: Final = 32 * 1024
"""Deliveries of one slice, whatever they are of: a message that many subscriptions of one session
match, or that has to be searched for among thousands of filters, causes as much as one to many."""
UNITS_FIRST: Final = 16
"""Units of work in the first slice of a client; twice as many in each turn after it, up to
``SLICE``: what its messages cause is known afterwards only."""
UNKNOWN: Final = 256
"""Deliveries that a message of who begins is taken to cause."""
FEW: Final = 8
"""Who had no more messages in its slice before never waits for the deliveries of others: that so
many have subscribed to what it sends now and then is not its doing."""
DELIVERIES_MAX: Final = 4_096
"""Deliveries that slices of one turn may cause: they are made after the slices, so that no clock
measures them. A slice that was begun is finished."""


TURN_US: Final = 4_000
"""Time that the messages of a turn may take to be written and handed out, microseconds, while
clients send more than a few at a time. A saturated broker needs about 2 for each."""
LIGHT_US: Final = 20
"""Time that a message of who sends few may take, microseconds."""
LIGHT_DELIVERY_US: Final = 2
"""Time that each of its deliveries may, beyond the first."""
LEARNT_US: Final = 2_000
"""Shorter turns say nothing of what a message takes."""
NO_LIMIT: Final = 1 << 30
"""More messages than any turn takes."""
REST_MIN_US: Final = 8_000
"""A turn that is longer, by a message or two that nobody can part, is followed by a rest: as long
a time in which no bulk is read, if there was anything else in it."""
REST_MAX_US: Final = 50_000
FEWEST: Final = 4
"""Messages of a turn that could hardly have been fewer."""


class TurnScheduler(Protocol):
    """What of a scheduler is needed."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run at the end of this turn of the loop."""
        ...

    def call_later(self, delay_us: int, callback: Callable[[], None]) -> object:
        """Run once after a delay, microseconds."""
        ...

    def gate(self) -> Gate:
        """A closed gate, for ``step``."""
        ...


class Worker(Protocol):
    """Somebody with work left."""

    @property
    def is_closed(self) -> bool:
        """Whether nothing of it is to be done any more."""
        ...

    def work_on(self) -> bool:
        """Do one slice; whether there is more that can be done now."""
        ...


@final
class FanOut:
    """What the messages of one client cause, where each goes to many.

    Attributes:
        each: deliveries that a message causes; 0 = few, and nothing is counted.
        published: messages of its slice before, whose deliveries are counted.
    """

    __slots__ = ("each", "published")

    def __init__(self) -> None:
        self.each: int = 0
        self.published: int = 0

    def units(self) -> int:
        """Units of work in a slice."""
        each = self.each
        if not each:
            return SLICE
        return max(min(SLICE_MIN, WIDE // each), SLICE // (1 + (each >> FAN_SHIFT)), 1)

    def waits(self, budget: TurnBudget, turn: int) -> bool:
        """Whether the client's next slice must wait for the deliveries of this turn."""
        return self._counts and budget.is_full(turn)

    @property
    def _counts(self) -> bool:
        """Whether its slices cause what others have to wait for."""
        each, published = self.each, self.published
        return each > 0 and (published > FEW or each * published >= DELIVERIES_MAX)

    def learn(self, caused: int, published: int, budget: TurnBudget, turn: int) -> None:
        """Look at what the messages of the slices before have caused.

        Args:
            caused: deliveries.
            published: messages in this slice, which have caused nothing yet.
            budget: told what they will cause.
            turn: number of this turn.
        """
        # Who alternates between topics is held to the worse one for some slices.
        self.each = max(caused // max(1, self.published), self.each - 1 - (self.each >> 3), 0)
        self.published = published
        if self._counts:
            budget.will_cause(self.each * published, turn)
            budget.gathered += self.each * published


@final
class Beginning:
    """Slices of a client of which nobody knows yet what its messages cause.

    Attributes:
        units: of work in its next slice.
    """

    __slots__ = ("_turn", "units")

    def __init__(self) -> None:
        self.units: int = UNITS_FIRST
        self._turn: int = -1

    def had(self, published: int, budget: TurnBudget, turn: int) -> bool:
        """It had a slice, with so many messages in it; returns whether it has begun."""
        if published:
            budget.will_cause(published * UNKNOWN, turn)
            if published > FEW:
                budget.gathered += published * UNKNOWN
        if not published or turn != self._turn:
            self._turn = turn
            if not published or not budget.allowance.is_long:
                self.units *= 2
        return self.units >= SLICE


@final
class Allowance:
    """How many messages a turn takes of those who send many: learned from the turns before.

    What a message takes is known afterwards only. It may have hundreds of levels, match ten
    thousand filters or be compared with a thousand, have a megabyte, or anything that nobody has
    thought of: the clock sees it all.

    Attributes:
        messages: so many; ``NO_LIMIT`` where they are cheap.
        is_long: the last turn in which somebody sent many took longer than it should.
        is_used: somebody sent many in this turn.
    """

    __slots__ = ("_fits", "is_long", "is_used", "messages")

    def __init__(self) -> None:
        self.messages: int = NO_LIMIT
        self.is_long: bool = False
        self.is_used: bool = False
        self._fits: int = NO_LIMIT

    def took(self, messages: int, elapsed_us: int, *, part: float = 1.0) -> None:
        """A turn has ended.

        Args:
            messages: of those who send many, written and handed out in it, >= 1.
            elapsed_us: time that the turn took.
            part: of this time they had, about, > 0 and <= 1.
        """
        if not self.is_used:
            return
        self.is_used = False
        self.is_long = elapsed_us > TURN_US
        fits = NO_LIMIT
        if elapsed_us >= LEARNT_US:
            fits = max(1, int(messages * TURN_US / (elapsed_us * part)))
            # A turn that the machine has held up once says nothing of its messages.
            fits, self._fits = max(fits, self._fits), fits
        if fits < min(self.messages, SLICE):
            self.messages = fits
        elif self.messages < SLICE:
            self.messages += self.messages // 4 + 1
        else:
            self.messages = NO_LIMIT


@final
class TurnBudget:
    """The queue of those who have work left.

    Args:
        turns: of the loop.
        clock: measures what is used of a turn.

    Attributes:
        newcomers_max: so many may wait before nobody else is accepted; 0 = no limit.
    """

    __slots__ = (
        "_begun",
        "_begun_turn",
        "_clock",
        "_gates",
        "_is_scheduled",
        "_is_woken",
        "_newcomers",
        "_rests_until_us",
        "_turn",
        "_turns",
        "_workers",
        "allowance",
        "deliveries",
        "gathered",
        "newcomers_max",
        "taken",
    )

    def __init__(self, turns: TurnScheduler, clock: Clock) -> None:
        self._turns: TurnScheduler = turns
        self._clock: Clock = clock
        self._workers: deque[Worker] = deque()
        self._newcomers: deque[Worker] = deque()
        """Those whose CONNECT was not looked at."""
        self.newcomers_max: int = 0
        self._gates: dict[object, deque[Gate]] = {}
        self._begun: int = 0
        """Clients that have begun in a turn."""
        self._begun_turn: int = -1
        """Number of that turn."""
        self._is_scheduled: bool = False
        self.deliveries: int = 0
        """What the slices of a turn will cause, as far as their clients are known for it."""
        self._turn: int = 0
        """Number of that turn."""
        self.gathered: int = 0
        """Deliveries that slices of more than a few messages will cause, since messages were handed
        out last."""
        self.allowance: Allowance = Allowance()
        self.taken: int = 0
        """Messages since then of those who sent many."""
        self._rests_until_us: int = 0
        self._is_woken: bool = False
        """A timer ends the rest for those who wait."""

    @property
    def is_busy(self) -> bool:
        """Whether somebody waits: the loop must not linger."""
        return self._is_scheduled

    def add(self, worker: Worker) -> None:
        """Call ``work_on`` in one of the next turns; who is in the queue must not come again."""
        self._workers.append(worker)
        self._schedule()

    def add_newcomer(self, worker: Worker) -> None:
        """As ``add``, for one whose CONNECT was not looked at: some of them begin in each turn,
        however many others wait. What was let in already would stand behind all of them."""
        self._newcomers.append(worker)
        self._schedule()

    @property
    def is_crowded(self) -> bool:
        """Whether so many newcomers wait that nobody else is to be accepted: each is a connection
        with all that belongs to it, and a client may open ten thousand before one had its turn.

        Who has sent half a CONNECT and had its turn is none: that may never come, and this must end
        by itself.
        """
        return 0 < self.newcomers_max <= len(self._newcomers)

    def may_begin(self, turn: int) -> bool:
        """Whether the first packet of another client is processed in a turn; else it joins the
        queue.

        Args:
            turn: its number.
        """
        if turn != self._begun_turn:
            self._begun_turn = turn
            self._begun = 0
        self._begun += 1
        return self._begun <= BEGUN_MAX

    def will_cause(self, deliveries: int, turn: int) -> None:
        """A slice was processed whose messages go to many.

        Args:
            deliveries: about so many.
            turn: number of the turn that makes them.
        """
        if turn != self._turn:
            self._turn = turn
            self.deliveries = 0
        self.deliveries += deliveries

    def is_full(self, turn: int) -> bool:
        """Whether the slices of this turn cause all the deliveries that it may have."""
        return self.deliveries >= DELIVERIES_MAX and turn == self._turn

    def many(self, messages: int) -> None:
        """Somebody has sent more than a few messages, or large ones."""
        self.taken += messages
        self.allowance.is_used = True

    @property
    def is_spent(self) -> bool:
        """Whether what was taken is all that may be written and handed out at once."""
        return self.taken >= self.allowance.messages or self.gathered >= DELIVERIES_MAX

    def handed_out(self, messages: int, work: int, elapsed_us: int) -> None:
        """What was taken was written and handed out: see ``Allowance``.

        Args:
            messages: of all clients, count.
            work: deliveries that these caused, beyond one for each.
            elapsed_us: time that this took.
        """
        if self.allowance.is_used and self.taken and messages:
            # The time belongs to those who send many as far as the messages do, or the work; or as
            # the others, who send what is known to be little, can't have had it.
            many = min(self.taken, messages)
            work_of_many = min(self.gathered, work)
            caused = many + work_of_many
            light_us = (messages - many) * LIGHT_US + (work - work_of_many) * LIGHT_DELIVERY_US
            part = max(
                many / messages, caused / (messages + work), 1 - light_us / max(1, elapsed_us)
            )
            self.allowance.took(many, elapsed_us, part=part)
            if elapsed_us > REST_MIN_US and many <= FEWEST and messages > many:
                rest_us = min(int(elapsed_us * part), REST_MAX_US)
                self._rests_until_us = self._clock.monotonic_us() + rest_us
        # Of what was refused, or is written later, this turn has none: the next one's time is not
        # theirs either.
        self.allowance.is_used = False
        self.taken = self.gathered = 0

    def rests(self) -> bool:
        """Whether no bulk is read for a while, for the sake of others; who waits here is called
        when that is over."""
        if not self._rests_until_us:
            return False
        left_us = self._rests_until_us - self._clock.monotonic_us()
        if left_us <= 0:
            self._rests_until_us = 0
            return False
        if not self._is_woken:
            self._is_woken = True
            self._turns.call_later(left_us, self._wake)
        return True

    def _wake(self) -> None:
        self._is_woken = False
        if self._waits:
            self._schedule()

    async def step(self, owner: object) -> None:
        """Wait for a step of long work; owners take turns.

        Args:
            owner: whose work it is.
        """
        gate = self._turns.gate()
        gates = self._gates.get(owner)
        if gates is None:
            self._gates[owner] = deque((gate,))
        else:
            gates.append(gate)
        self._schedule()
        await gate

    def release(self, owner: object) -> None:
        """The owner is gone: what waits for its steps goes on now, to find that out."""
        for gate in self._gates.pop(owner, ()):
            gate.open()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._turns.call_soon(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        self.deliveries = 0
        for owner in list(self._gates)[:STEPS_MAX]:
            gates = self._gates.pop(owner)
            gates.popleft().open()
            if gates:
                self._gates[owner] = gates  # behind the other owners
        rests = self.rests()
        if not rests:
            self._work()
        if (self._waits and not rests) or self._gates:
            self._schedule()

    @property
    def _waits(self) -> bool:
        return bool(self._workers or self._newcomers)

    def _work(self) -> None:
        """Give slices to those who wait."""
        workers, newcomers, clock = self._workers, self._newcomers, self._clock
        until_us = clock.monotonic_us() + LEFTOVER_US
        # They take no slice of others: of clients that come and go fast thousands would stand here
        # for the whole time of a CONNECT, with all that belongs to them.
        left = _let_go(newcomers, GONE_MAX)
        for _ in range(min(BEGUN_MAX, len(newcomers))):
            self._serve(newcomers)
            if clock.monotonic_us() >= until_us:
                break
        for _ in range(SLICES_MAX):
            left = _let_go(workers, left)
            if not workers:
                break
            self._serve(workers)
            if clock.monotonic_us() >= until_us:
                break
            # One has its slice in any case, however many come: and what is spent may be handed out
            # with the next only.
            if self.deliveries >= DELIVERIES_MAX or self.is_spent:
                break

    def _serve(self, queue: deque[Worker]) -> None:
        """Give the first of a queue its slice."""
        worker = queue.popleft()
        if worker.work_on():
            self._workers.append(worker)


def _let_go(queue: deque[Worker], most: int) -> int:
    """Forget those in front that are closed; returns how many more of ``most`` may go."""
    while most > 0 and queue and queue[0].is_closed:
        queue.popleft()
        most -= 1
    return most
