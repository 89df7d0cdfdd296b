"""One forwarder: opens its session and its output, reads the log, and hands on what fits.

::

    CONNECTING --opened--> RUNNING --target lost--> RETRYING --pause over--> CONNECTING
         \\--ConfigError, or a refused message with `on_refused: stop`--> STOPPED (until changed)

Its work is cut into slices, between which clients are served (``loop_share``). While there is
nothing new it looks at one number every ``POLL_S``. Sketch for one page of 500 messages: one
read of the tail (2 us a message), the output's own work, and a cursor every ``SAVE_S`` in a batch
that is written anyway.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from perdure.admin.records.forwarders import Forwarder as Record
from perdure.config.schema import ForwarderConfig, type_of
from perdure.config.units import format_time
from perdure.errors import ConfigError, PerdureError, StorageError, TargetUnavailable
from perdure.forwarders.dead_letter import DeadLetters
from perdure.forwarders.gap import GapWatch
from perdure.forwarders.pages import Page, Pages
from perdure.forwarders.selection import Selection

if TYPE_CHECKING:
    from perdure.forwarders.output import Context, Output, OutputOpener, Refusal
    from perdure.model import Message

POLL_S: Final = 0.01
"""How often an idle forwarder looks whether the log has grown."""
SAVE_S: Final = 0.5
"""A cursor that moved is written after this time, as that of a session."""
RETRY_MIN_S: Final = 0.25
"""First pause before another attempt; each is twice the one before."""
STOP_S: Final = 5.0
"""Time that a batch on its way has when the forwarder is stopped."""

CONNECTING: Final = "connecting"
RUNNING: Final = "running"
RETRYING: Final = "retrying"
STOPPED: Final = "stopped"
PAUSED: Final = "paused"
STANDBY: Final = "standby"


@final
class Forwarder:
    """Runs one forwarder, from its settings.

    Args:
        settings: of the forwarder.
        context: of the forwarder.
        opener: makes its output.

    Raises:
        ConfigError: the settings cannot be used.

    Attributes:
        state: where it is, above.
        error: why it does not run, or what it failed with last.
    """

    def __init__(self, settings: ForwarderConfig, context: Context, opener: OutputOpener) -> None:
        self.settings = settings
        self._context = context
        self._opener = opener
        self._selection = Selection(settings, setting=context.setting)
        self._dead_letters = DeadLetters(settings, context)
        self._gap = GapWatch(context)
        opener(settings, context)  # says now what is wrong with the settings
        self.state: str = CONNECTING
        self.error: str = ""
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._writing = False
        self._saved_s = 0.0

    def start(self) -> None:
        """Begin; ``stop`` must follow."""
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=f"forwarder {self._context.name}"
        )

    async def stop(self) -> None:
        """End, with the cursor behind what is safe at the target."""
        task = self._task
        if task is None:
            return
        self._stopping.set()
        if self._writing:
            # A batch that is handed over whole is not repeated later.
            await asyncio.wait((task,), timeout=STOP_S)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self._task = None
        try:
            await self._context.session.close()
        except StorageError as error:
            self._context.log.warning("forwarder.not_saved", error=error.message)

    # -- what others ask -------------------------------------------------------------------

    def lag(self) -> tuple[int, int]:
        """Messages of the log that are not forwarded, at most, and the age of the oldest, s."""
        core, session = self._context.core, self._context.session
        last = core.database.last_offset
        offset = session.cursor.offset
        if not offset or offset >= last:
            return 0, 0
        count = core.database.messages_after(offset)
        age_us = core.clock.wall_us() - offset
        return count, max(0, age_us // 1_000_000) if count else 0

    def row(self) -> Record:
        """The forwarder as commands show it."""
        session = self._context.session
        messages, seconds = self.lag()
        return Record(
            name=self._context.name,
            type=type_of(self.settings),
            state=self.state,
            lag_messages=messages,
            lag_s=seconds,
            **self._context.counts.row(),
            offset=session.cursor.offset,
            position=format_time(session.cursor.offset),
            node=session.node or None,
            error=self.error,
        )

    @property
    def position(self) -> int:
        """Everything up to here is forwarded; 0 = not known, or it has never run."""
        return self._context.session.cursor.offset

    async def look(self) -> None:
        """Learn where it left off, without owning the session: it may never be started."""
        try:
            await self._context.session.look()
        except StorageError as error:
            self._context.log.warning("forwarder.not_read", error=error.message)

    @property
    def gap_at_us(self) -> int:
        """Monotonic time at which retention was last found to have dropped something unread; 0 =
        never."""
        return self._gap.found_at_us

    def tell(self) -> None:
        """Write the gauges, and look for gaps: the target may be away for long."""
        if self.state != STANDBY:
            self._gap.look()
        messages, seconds = self.lag()
        self._context.counts.lag(messages, seconds, running=self.state == RUNNING)

    # -- the life --------------------------------------------------------------------------

    async def _run(self) -> None:
        pause_s = RETRY_MIN_S
        context = self._context
        while not self._stopping.is_set():
            self.state = CONNECTING if not self.error else RETRYING
            before = context.session.cursor.offset
            output: Output | None = None
            try:
                if not context.session.is_open:
                    await context.session.open(start_offset=self._start_offset())
                else:
                    await context.session.hold()
                output = self._opener(self.settings, context)
                await self._forward(output)
                return
            except ConfigError as error:
                self._stopped(error)
                return
            except (PerdureError, OSError) as error:
                if context.session.cursor.offset != before:
                    pause_s = RETRY_MIN_S  # it had got on
                self._failed(error, pause_s)
            except Exception as error:  # noqa: BLE001 - it costs this forwarder, not the broker
                context.core.unexpected_errors.report(error, "background", task=context.name)
                self._failed(error, pause_s)
            finally:
                if output is not None:
                    await output.close()
            await self._pause(pause_s * context.core.random.uniform(0.8, 1.2))
            pause_s = min(pause_s * 2, float(self.settings.retry_max_s))

    def _start_offset(self) -> int:
        return self._context.session.safe_offset() if self.settings.start == "now" else 0

    def _stopped(self, error: ConfigError) -> None:
        self.state, self.error = STOPPED, error.message
        self._context.counts.failed()
        self._context.log.error("forwarder.stopped", error=error.message, hint=error.hint)

    def _failed(self, error: Exception, pause_s: float) -> None:
        text = error.message if isinstance(error, PerdureError) else str(error) or repr(error)
        self._context.counts.failed()
        if text != self.error:
            self._context.log.warning("forwarder.retrying", error=text, pause_s=round(pause_s, 2))
        self.state, self.error = RETRYING, text

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _forward(self, output: Output) -> None:
        """Connect, and forward until the target is lost or somebody stops it."""
        context, session = self._context, self._context.session
        async with asyncio.timeout(self.settings.timeout_s):
            known = await output.open(session.cursor)
        if known > session.cursor.offset:
            context.log.info("forwarder.ahead", cursor=session.cursor.offset, target=known)
            session.moved(output.advance(session.cursor, count=0, through_offset=known))
        if self.state != RUNNING:
            context.log.info("forwarder.running", after_error=self.error)
        self.state, self.error = RUNNING, ""
        pages = Pages(self.settings, context, self._selection, numbered=output.numbers)
        try:
            while not self._stopping.is_set():
                if not output.reads_log or not self._has_more(pages):
                    output.check()
                    self._save()
                    await self._pause(POLL_S)
                    continue
                self._gap.look()
                page = await pages.next(session.cursor.offset)
                pages.read_ahead(page)
                await self._hand_over(output, page)
                self._save()
                await context.core.yield_to_loop()
        finally:
            await pages.close()

    def _has_more(self, pages: Pages) -> bool:
        session = self._context.session
        return pages.is_ahead or session.safe_offset() > session.cursor.offset

    async def _hand_over(self, output: Output, page: Page) -> None:
        """Hand a page over; in halves where a part is refused, the cursor behind each.

        So a target that is slow, or fails now and then, is never asked from the beginning.
        """
        context, session = self._context, self._context.session
        parts = [(page.messages, page.through_offset)]
        while parts and not self._stopping.is_set():
            chosen, through = parts.pop()
            refused = await self._write(output, chosen) if chosen else []
            if refused is None:
                half = len(chosen) // 2
                parts += [(chosen[half:], through), (chosen[:half], chosen[half - 1].offset)]
                continue
            if refused:
                self._refused(refused)
            if chosen:
                context.counts.forwarded(len(chosen) - len(refused) - output.passed_over)
            session.moved(output.advance(session.cursor, count=len(chosen), through_offset=through))
            if refused:
                session.save()  # in one batch with the dead letters

    async def _write(self, output: Output, messages: list[Message]) -> list[Refusal] | None:
        self._writing = True
        try:
            async with asyncio.timeout(self.settings.timeout_s):
                return await output.write(messages)
        except TimeoutError:
            raise TargetUnavailable(
                f"the target took longer than {self.settings.timeout_s} s"
            ) from None
        finally:
            self._writing = False

    def _refused(self, refused: list[Refusal]) -> None:
        """Do with refused messages what the settings say.

        Raises:
            ConfigError: the forwarder is to stop before them.
        """
        first = refused[0]
        if self.settings.on_refused == "stop":
            raise ConfigError(
                f"the target refuses {first.message.topic} (offset {first.message.offset}): "
                f"{first.reason}",
                path=self._context.setting,
                hint="mend the target, or let `on_refused` be `dead_letter`, and resume",
            )
        self._context.counts.dropped("refused", len(refused))
        for refusal in refused:
            self._context.log.warning(
                "forwarder.refused", offset=refusal.message.offset, reason=refusal.reason
            )
            self._dead_letters.put(refusal)

    def _save(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._saved_s >= SAVE_S:
            self._saved_s = now_s
            self._context.session.save()
