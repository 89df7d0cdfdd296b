"""A broker's whole state in Redis: the driver of the profile ``redis``.

A transaction is one MULTI/EXEC on a connection of its own, which *watches* the key of the writer:
whoever claims the state changes that key, and every commit of an earlier claim, also one that is
still on its way, is refused by the server. Watching again is part of the same round trip. Reads
(``state``) go over another connection, behind what was acknowledged.

In a cluster the rows are in one slot and each queue is in that of its client, where no transaction
reaches. So what is to happen to queues is stored with the rows first, as a *journal*; then it is
done, and if that is interrupted, done again by the next claim: all of it may be repeated.

A *lease* with a time to live says that the writer lives. It only keeps a second broker from
starting; what keeps a stale one from writing is the watched key.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Sequence
from typing import Final, final

from hiredis import ReplyError

from perdure.config.schema.storage import RedisConfig
from perdure.errors import Fenced, StorageCorrupt, StorageError, StorageLocked, StorageUnavailable
from perdure.storage.redis import durability
from perdure.storage.redis.commands import Argument, Command, Reply, check, pack
from perdure.storage.redis.connection import Connection
from perdure.storage.redis.state import RedisState
from perdure.storage.redis.transactions import (
    decode_commands,
    encode_commands,
    queue_commands,
    row_commands,
)
from perdure.storage.remote.driver import QUEUE_MAX, Claim, Transaction

LEASE_MS: Final = 10_000
LEASE_RENEWED_S: Final = 3.0

_MULTI: Final = pack((b"MULTI",))
_EXEC: Final = pack((b"EXEC",))


@final
class RedisDriver(RedisState):
    """A ``storage.remote.driver.Driver`` on a Redis server or cluster.

    Args:
        url: see ``url``.
        prefix: of all keys.
        identity: who this broker is, through restarts: it may take up its own lease at once.
        command_timeout_s: how long an answer may take.
        policy: what to do about a server that may lose what it has acknowledged.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "perdure",
        identity: str = "",
        command_timeout_s: float = 15.0,
        policy: durability.Policy = "warn",
    ) -> None:
        super().__init__(url, prefix=prefix, command_timeout_s=command_timeout_s)
        self.queue_max = QUEUE_MAX
        self._policy = policy
        self._identity = (identity or uuid.uuid4().hex).encode()
        self._token = uuid.uuid4().hex.encode()
        self._claims = 0
        self._writer: Connection | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._unfinished: list[Command] = []

    @classmethod
    def configured(cls, section: RedisConfig, identity: str) -> RedisDriver:
        """As a configuration says; see ``config.backends``.

        Raises:
            ConfigError: the URL is wrong.
        """
        return cls(
            section.url,
            prefix=section.prefix,
            identity=identity,
            command_timeout_s=float(section.command_timeout_s),
            policy=section.durability,
        )

    # -- claiming --------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        return self._writer is not None and self._writer.is_open

    async def probe(self) -> None:
        client = await self._connect()
        try:
            await durability.check(client, self._policy)
        finally:
            await client.close()

    async def claim(self) -> Claim:
        await self._let_go()
        reader = self._reader
        if reader is None:
            reader = await self._connect()
            self._reader = reader
            await durability.check(reader, self._policy)
        node = await reader.node_of(self._names.owner)
        connection = await node.open()
        try:
            if not self._claims:
                await self._wait_for_lease(connection)
            await self._take(connection)
            if self._address.cluster:
                await self._repeat_journal(connection)
            else:
                await self._finish(connection)
            number = await _ask(connection, (b"GET", self._names.number))
        except BaseException:
            connection.close()
            raise
        self._writer = connection
        self._renewing = asyncio.get_running_loop().create_task(self._renew(connection))
        assert number is None or isinstance(number, bytes)
        return Claim(int(number or 0))

    async def _wait_for_lease(self, connection: Connection) -> None:
        """Wait until the lease of another broker has run out, which it does if that is dead."""
        left = 1 << 62
        while True:
            holder = await _ask(connection, (b"GET", self._names.lease))
            if holder is None or holder == self._identity:
                return
            now = await _ask(connection, (b"PTTL", self._names.lease))
            assert isinstance(now, int)
            if now > left:
                raise StorageLocked(
                    f"{self.place} is in use by another broker",
                    hint="stop that broker, or give this one another storage.redis.prefix",
                )
            left = now
            await asyncio.sleep(min(max(now, 0) / 1000 + 0.01, LEASE_RENEWED_S + 0.5))

    async def _take(self, connection: Connection) -> None:
        """Become the writer: whoever was it before can commit nothing any more."""
        names = self._names
        watched = await _ask_all(connection, [(b"WATCH", names.owner), (b"GET", names.owner)])
        if self._claims and watched[1] != self._mine():
            raise Fenced(f"another broker has written to {self.place}")
        self._claims += 1
        replies = await _ask_all(
            connection,
            [
                (b"MULTI",),
                (b"SET", names.owner, self._mine()),
                (b"SET", names.lease, self._identity, b"PX", LEASE_MS),
                (b"EXEC",),
                (b"WATCH", names.owner),
                (b"GET", names.owner),
            ],
        )
        if replies[3] is None or replies[5] != self._mine():
            raise StorageLocked(f"another broker has claimed {self.place} at the same moment")

    def _mine(self) -> bytes:
        return b"%b:%d" % (self._token, self._claims)

    async def _repeat_journal(self, connection: Connection) -> None:
        """Do what the last transaction wanted of queues: nobody knows how far it came."""
        journal = await _ask(connection, (b"GET", self._names.journal))
        if journal is not None:
            assert isinstance(journal, bytes)
            await self._execute(decode_commands(journal))

    async def _finish(self, connection: Connection) -> None:
        """Do what a transaction has left, that is stored and met a server without its code."""
        if self._unfinished:
            for reply in await _ask_all(connection, [each.args for each in self._unfinished]):
                check(reply)
            self._unfinished = []

    async def _renew(self, connection: Connection) -> None:
        """Say that this broker lives, for as long as its connection does and it is the writer."""
        names = self._names
        parts = [
            _MULTI,
            pack((b"SET", names.lease, self._identity, b"PX", LEASE_MS)),
            _EXEC,
            pack((b"WATCH", names.owner)),
            pack((b"GET", names.owner)),
        ]
        packed = b"".join(parts)
        with contextlib.suppress(StorageError):
            while connection.is_open:
                await asyncio.sleep(LEASE_RENEWED_S)
                replies = await connection.send(packed, len(parts))
                if replies[2] is None or replies[4] != self._mine():
                    # Another broker is: the claim that follows a lost connection finds that out.
                    connection.close()

    async def _let_go(self) -> None:
        renewing, self._renewing = self._renewing, None
        if renewing is not None:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    async def close(self) -> None:
        writer = self._writer
        if writer is not None and writer.is_open:
            # Only if it is ours still; the next broker need not wait then.
            with contextlib.suppress(StorageError):
                await _ask_all(writer, [(b"MULTI",), (b"DEL", self._names.lease), (b"EXEC",)])
        await self._let_go()
        await super().close()

    # -- writing ---------------------------------------------------------------------------

    async def commit(self, transaction: Transaction) -> None:
        writer = self._writer
        if writer is None or not writer.is_open:
            raise StorageUnavailable(f"{self.place}: there is no connection")
        names = self._names
        commands = row_commands(names, transaction)
        queues = queue_commands(self._layout, transaction)
        if self._address.cluster:
            journal = encode_commands(queues)
            commands.append(Command((b"SET", names.journal, journal), names.journal))
        else:
            commands += queues
        parts = [_MULTI]
        parts += [pack(command.args) for command in commands]
        parts += [
            pack((b"SET", names.number, transaction.number)),
            _EXEC,
            pack((b"WATCH", names.owner)),
            pack((b"GET", names.owner)),
        ]
        replies = await writer.send(b"".join(parts), len(parts))
        result = replies[-3]
        if isinstance(result, ReplyError):
            # EXECABORT says nothing; the command that was refused says why.
            check(next((each for each in replies if isinstance(each, ReplyError)), result))
        if result is None:
            raise Fenced(f"another broker writes to {self.place}")
        if replies[-1] != self._mine():
            # This one was applied; the next one must not be.
            await self._let_go()
        assert isinstance(result, list)
        await self._make_up(writer, commands, result)
        if queues and self._address.cluster:
            await self._execute(queues)

    async def _make_up(
        self, writer: Connection, commands: list[Command], result: list[Reply]
    ) -> None:
        """Run again what EXEC could not, because the server had lost its functions."""
        failed = [
            command
            for command, reply in zip(commands, result[:-1], strict=True)
            if isinstance(reply, ReplyError)
        ]
        if not failed:
            return
        for reply in result:
            if isinstance(reply, ReplyError) and "Function not found" not in str(reply):
                raise StorageCorrupt(f"{self.place} refused a part of a transaction: {reply}")
        self._unfinished = failed
        code = self._layout.code
        loads: list[tuple[Argument, ...]] = [
            (b"FUNCTION", b"LOAD", b"REPLACE", library.code) for library in code.libraries
        ]
        await _ask_all(writer, loads)
        await self._finish(writer)


async def _ask_all(connection: Connection, commands: Sequence[tuple[Argument, ...]]) -> list[Reply]:
    """Replies of commands on one connection; an error reply is raised."""
    if not commands:
        return []
    packed = b"".join([pack(command) for command in commands])
    return [check(reply) for reply in await connection.send(packed, len(commands))]


async def _ask(connection: Connection, command: tuple[Argument, ...]) -> Reply:
    (reply,) = await _ask_all(connection, [command])
    return reply
