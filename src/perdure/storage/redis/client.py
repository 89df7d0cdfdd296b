"""The client: batches of commands to one server or to the nodes of a cluster.

A batch is sent in one write to each node it concerns, and waits on one future for each. What a
server asks for is done here: redirections (MOVED, ASK), another moment (TRYAGAIN, LOADING,
CLUSTERDOWN, keys of a script that are on their way), code that it has lost (NOSCRIPT, a missing
function). Everything else is the caller's to judge.

Commands of one key are sent in the order of the batch; what a server turns away for the moment
comes after what it took. So what must not be overtaken by the next command of its key stands in a
batch of its own, or is one command with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, Self, final

from hiredis import ReplyError

from perdure.errors import StorageError, StorageUnavailable
from perdure.storage.redis.commands import SLOTS, Command, Reply, check, pack, slot_of
from perdure.storage.redis.node import ClientSettings, Code, Node
from perdure.storage.redis.url import RedisAddress

_DELAY_FIRST_S: Final = 0.002
_DELAY_MAX_S: Final = 0.1
_SCAN_COUNT: Final = 1000
_ASKING: Final = pack(("ASKING",))

_NON_LOCAL: Final = "Script attempted to access a non local key"
_LATER: Final = frozenset(("TRYAGAIN", "LOADING", "CLUSTERDOWN", "MASTERDOWN", "BUSY"))


@final
class RedisClient:
    """A client of one Redis server or of a cluster; ``connect`` makes it.

    Args:
        address: where it is and how to log in.
        settings: how patient to be.
        code: functions and scripts that commands use.
    """

    def __init__(
        self,
        address: RedisAddress,
        *,
        settings: ClientSettings | None = None,
        code: Code | None = None,
    ) -> None:
        self.address = address
        self._settings = settings or ClientSettings()
        self._code = code or Code()
        self._context = address.tls.context() if address.tls else None
        self._nodes: dict[tuple[str, int], Node] = {}
        self._only: Node | None = None
        self._slots: list[Node] = []
        self._stale = False
        self._refreshing: asyncio.Task[None] | None = None

    @classmethod
    async def connect(
        cls,
        address: RedisAddress,
        *,
        settings: ClientSettings | None = None,
        code: Code | None = None,
    ) -> Self:
        """A client that has logged in (to one node at least).

        Raises:
            ConfigError: the login is refused, or the server is too old.
            StorageUnavailable: nobody is there.
        """
        client = cls(address, settings=settings, code=code)
        error: StorageError | None = None
        for host, port in address.nodes:
            try:
                await client._node(host, port).connect()
                if address.cluster:
                    await client._refresh()
            except StorageError as failed:
                error = failed
            except BaseException:
                await client.close()
                raise
            else:
                return client
        await client.close()
        assert error is not None
        raise error

    async def execute(self, commands: Sequence[Command]) -> list[Reply]:
        """Send commands; their replies in the same order, error replies among them.

        Raises:
            StorageUnavailable, StorageTimeout: a connection was lost or silent, or none came in
                time. It is not known which of the commands took place.
        """
        if not commands:
            return []
        if not self.address.cluster:
            node = self._only_node()
            packed = _pack(commands)
            connection = node.ready()
            if connection is not None:
                replies = await connection.send(packed, len(commands))
            else:
                replies = await node.request(packed, len(commands))
            for reply in replies:
                if type(reply) is ReplyError and _is_ours(reply):
                    break
            else:
                return replies
            return await self._retry(commands, replies)
        return await self._retry(commands, None)

    async def call(self, command: Command) -> bytes | int | list[Reply] | None:
        """Send one command; its reply.

        Raises:
            StorageError, UsageError: as of ``execute``, and what an error reply means.
        """
        return check((await self.execute([command]))[0])

    async def transaction(self, commands: Sequence[Command]) -> list[Reply]:
        """Run commands of one node as MULTI/EXEC; their replies, error replies among them.

        In a cluster all keys must be of one slot. An error reply of one command does not undo the
        others: that is what EXEC promises, and all.

        Raises:
            StorageError: nothing of it took place, or (StorageUnavailable, StorageTimeout) it is
                not known whether all or nothing did.
        """
        deadline = asyncio.get_running_loop().time() + self._settings.wait_s
        delay_s = _DELAY_FIRST_S
        packed = b"".join((pack(("MULTI",)), _pack(commands), pack(("EXEC",))))
        while True:
            node = await self._route(commands[0])
            replies = await node.request(packed, len(commands) + 2)
            result = replies[-1]
            if not isinstance(result, ReplyError):
                assert isinstance(result, list)
                return result
            # EXECABORT says nothing; the command that was refused says why.
            refused = next(reply for reply in replies if isinstance(reply, ReplyError))
            if not _is_ours(refused) or asyncio.get_running_loop().time() > deadline:
                check(refused)
            await self._follow(refused, node)
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, _DELAY_MAX_S)

    async def node_of(self, key: bytes) -> Node:
        """The server that has a key, for a caller with a connection of its own."""
        return await self._route(Command((), key))

    async def on_masters(self, command: Command) -> list[Reply]:
        """Send one command to every master; the replies."""
        return [(await node.request(pack(command.args), 1))[0] for node in await self._masters()]

    async def scan(self, pattern: bytes) -> AsyncIterator[list[bytes]]:
        """Keys that match a pattern, in pages without order; a key may come twice."""
        for node in await self._masters():
            cursor: Reply = b"0"
            while True:
                assert isinstance(cursor, bytes)
                command = ("SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN_COUNT)
                reply = check((await node.request(pack(command), 1))[0])
                assert isinstance(reply, list)
                cursor, keys = reply
                assert isinstance(keys, list)
                yield [key for key in keys if isinstance(key, bytes)]
                if cursor == b"0":
                    break

    async def close(self) -> None:
        """Close all connections; what is unanswered fails."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)
        for node in self._nodes.values():
            await node.close()

    async def _retry(self, commands: Sequence[Command], first: list[Reply] | None) -> list[Reply]:
        """Send what has no answer yet until everything has one, or the time is up."""
        replies: list[Reply] = list(first) if first else [None] * len(commands)
        todo = list(range(len(commands)))
        asking: dict[int, Node] = {}
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.wait_s
        delay_s = _DELAY_FIRST_S
        fresh = first is not None
        while True:
            if not fresh:
                await self._send(commands, todo, asking, replies)
            fresh = False
            asking = {}
            retried: list[int] = []
            is_late = False
            for index in todo:
                reply = replies[index]
                if type(reply) is not ReplyError or not _is_ours(reply):
                    continue
                retried.append(index)
                node = await self._route(commands[index])
                target = await self._follow(reply, node)
                if target is not None:
                    asking[index] = target
                is_late = is_late or _is_later(reply)
            if not retried or loop.time() > deadline:
                return replies
            todo = retried
            if is_late:
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, _DELAY_MAX_S)

    async def _send(
        self,
        commands: Sequence[Command],
        todo: list[int],
        asking: dict[int, Node],
        replies: list[Reply],
    ) -> None:
        groups: dict[Node, list[int]] = {}
        # At most one look at the slots for all of them.
        await self._route(commands[todo[0]])
        only = None if self.address.cluster else self._only_node()
        slots = self._slots
        for index in todo:
            node = asking.get(index) or only or slots[slot_of(commands[index].key)]
            groups.setdefault(node, []).append(index)
        sent = []
        for node, indexes in groups.items():
            parts = []
            for index in indexes:
                if index in asking:
                    parts.append(_ASKING)
                parts.append(pack(commands[index].args))
            sent.append(node.request(b"".join(parts), len(parts)))
        answers = await asyncio.gather(*sent, return_exceptions=True)
        for indexes, answer in zip(groups.values(), answers, strict=True):
            if isinstance(answer, BaseException):
                # Its slots may have another owner by now.
                self._stale = True
                raise answer
            position = 0
            for index in indexes:
                position += index in asking
                replies[index] = answer[position]
                position += 1

    async def _follow(self, error: ReplyError, node: Node) -> Node | None:
        """Do what an error reply asks for; the node to ask, after ASK."""
        kind, _, rest = str(error).partition(" ")
        if kind in ("MOVED", "ASK"):
            slot, _, place = rest.partition(" ")
            host, _, port = place.rpartition(":")
            target = self._node(host or node.host, int(port))
            if kind == "ASK":
                return target
            if self._slots:
                self._slots[int(slot)] = target
        elif kind == "READONLY":
            node.reset()
            self._stale = True
        elif kind == "CLUSTERDOWN":
            self._stale = True
        elif not _is_later(error):
            await node.load()
        return None

    async def _route(self, command: Command) -> Node:
        if not self.address.cluster:
            return self._only_node()
        if self._stale or not self._slots:
            await self._refresh()
        return self._slots[slot_of(command.key)]

    async def _masters(self) -> list[Node]:
        if not self.address.cluster:
            return [self._only_node()]
        await self._refresh()
        return list(dict.fromkeys(self._slots))

    async def _refresh(self) -> None:
        """Learn the owners of the slots from any node; callers at the same time share one look."""
        task = self._refreshing
        if task is None or task.done():
            task = self._refreshing = asyncio.create_task(self._learn())
        await asyncio.shield(task)

    async def _learn(self) -> None:
        error: StorageError | None = None
        known = list(self._nodes.values())
        known += [self._node(host, port) for host, port in self.address.nodes]
        # Those that answer first: a dead one costs the whole wait.
        known.sort(key=lambda node: not node.is_connected)
        for node in dict.fromkeys(known):
            try:
                (reply,) = await node.request(pack(("CLUSTER", "SLOTS")), 1)
                ranges = check(reply)
            except StorageError as failed:
                error = failed
                continue
            assert isinstance(ranges, list)
            slots = self._owners(ranges, node)
            if slots is not None:
                self._slots = slots
                self._stale = False
                await self._forget_others()
                return
            error = StorageUnavailable("the Redis cluster does not serve all slots")
        assert error is not None
        raise error

    def _owners(self, ranges: list[Reply], asked: Node) -> list[Node] | None:
        slots: list[Node | None] = [None] * SLOTS
        for entry in ranges:
            assert isinstance(entry, list)
            first, last, master = entry[0], entry[1], entry[2]
            assert isinstance(first, int)
            assert isinstance(last, int)
            assert isinstance(master, list)
            host, port = master[0], master[1]
            assert isinstance(port, int)
            # Empty or absent: the one that was asked.
            name = host.decode() if isinstance(host, bytes) and host else asked.host
            slots[first : last + 1] = [self._node(name, port)] * (last + 1 - first)
        owners = [node for node in slots if node is not None]
        return owners if len(owners) == SLOTS else None

    async def _forget_others(self) -> None:
        """Close nodes that own nothing any more and are not named in the address."""
        owners = set(self._slots)
        for place, node in list(self._nodes.items()):
            if node not in owners and place not in self.address.nodes:
                del self._nodes[place]
                await node.close()

    def _only_node(self) -> Node:
        node = self._only
        if node is None:
            node = self._only = self._node(*self.address.nodes[0])
        return node

    def _node(self, host: str, port: int) -> Node:
        node = self._nodes.get((host, port))
        if node is None:
            node = self._nodes[host, port] = Node(
                host,
                port,
                address=self.address,
                context=self._context,
                settings=self._settings,
                code=self._code,
            )
        return node


def _pack(commands: Sequence[Command]) -> bytes:
    if len(commands) == 1:
        return pack(commands[0].args)
    return b"".join([pack(command.args) for command in commands])


def _is_later(error: ReplyError) -> bool:
    """Whether the same command may succeed in a moment."""
    kind, _, rest = str(error).partition(" ")
    # A slot is on its way, and the script, which found out before it wrote, needs other keys of it.
    return kind in _LATER or (kind == "ERR" and rest.startswith(_NON_LOCAL))


def _is_ours(error: ReplyError) -> bool:
    """Whether the command did not take place, and it is for the client to help it on."""
    kind, _, rest = str(error).partition(" ")
    if kind in ("MOVED", "ASK", "NOSCRIPT", "READONLY") or _is_later(error):
        return True
    return kind == "ERR" and rest.startswith("Function not found")
