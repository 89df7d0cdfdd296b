"""The rows and queue entries of a broker's transaction as Redis commands; pure.

::

    {<prefix>}:h:<table>:<owner>   hash: key -> value         (tables of values, ordered tables)
    {<prefix>}:i:<table>:<owner>   sorted set of keys, score 0: byte order   (names, ordered)
    {<prefix>}:number              of the last transaction
    {<prefix>}:owner               token of the writer: every commit watches it
    {<prefix>}:lease               who lives, with a time to live
    {<prefix>}:journal             cluster: what the last transaction wants of queues, MessagePack

All of them are in one slot, so that one MULTI/EXEC takes them. Queues have the keys of their
layout, each in the slot of its client.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import msgspec

from perdure.errors import StorageCorrupt
from perdure.storage.device_queue import QUEUE_LIMIT_MAX
from perdure.storage.redis.commands import Argument, Command
from perdure.storage.redis.compact import CompactLayout
from perdure.storage.remote.driver import TABLES, Kind, Owner, Transaction

NOBODY_EPOCH: Final = 0
"""Epoch of queues that nobody took: the claim of the whole database stands for their owner."""

TRIM: Final = """
local gone = redis.call('ZRANGE', KEYS[2], '-', '[' .. ARGV[1], 'BYLEX')
for at = 1, #gone, 1000 do
  local last = math.min(at + 999, #gone)
  redis.call('HDEL', KEYS[1], unpack(gone, at, last))
  redis.call('ZREM', KEYS[2], unpack(gone, at, last))
end
return #gone
"""


@final
class Names:
    """The keys of one broker.

    Args:
        prefix: without braces.
    """

    def __init__(self, prefix: str) -> None:
        self._begin = b"{%b}:" % prefix.encode()
        self.number = self._begin + b"number"
        self.owner = self._begin + b"owner"
        self.lease = self._begin + b"lease"
        self.journal = self._begin + b"journal"
        self._tables = {
            table: (self._begin + b"h:" + table.encode(), self._begin + b"i:" + table.encode())
            for table in TABLES
        }

    def values(self, table: str, owner: Owner) -> bytes:
        """Key of the hash."""
        return b"%b:%b" % (self._tables[table][0], owner)

    def index(self, table: str, owner: Owner) -> bytes:
        """Key of the sorted set."""
        return b"%b:%b" % (self._tables[table][1], owner)


def row_commands(names: Names, transaction: Transaction) -> list[Command]:
    """What happens to rows, in the order that ``Transaction`` says."""
    commands: list[Command] = []
    dropped: list[Argument] = []
    for table, owner in transaction.dropped:
        kind = TABLES[table]
        if kind is not Kind.NAMES:
            dropped.append(names.values(table, owner))
        if kind is not Kind.VALUES:
            dropped.append(names.index(table, owner))
    if dropped:
        commands.append(Command((b"UNLINK", *dropped), names.number))
    for (table, owner), through in transaction.trimmed.items():
        key, index = names.values(table, owner), names.index(table, owner)
        commands.append(Command((b"EVAL", TRIM, 2, key, index, through), key))
    for (table, owner), changed in transaction.puts.items():
        kind = TABLES[table]
        pairs: list[Argument] = []
        members: list[Argument] = []
        gone: list[Argument] = []
        for key, value in changed.items():
            if value is None:
                gone.append(key)
            else:
                pairs += (key, value)
                members += (0, key)
        if kind is not Kind.NAMES:
            place = names.values(table, owner)
            if pairs:
                commands.append(Command((b"HSET", place, *pairs), place))
            if gone:
                commands.append(Command((b"HDEL", place, *gone), place))
        if kind is not Kind.VALUES:
            place = names.index(table, owner)
            if members:
                commands.append(Command((b"ZADD", place, *members), place))
            if gone:
                commands.append(Command((b"ZREM", place, *gone), place))
    return commands


def queue_commands(layout: CompactLayout, transaction: Transaction) -> list[Command]:
    """What happens to queues, in the same order."""
    commands = [
        layout.discard(client_id, epoch=NOBODY_EPOCH) for client_id in transaction.discarded
    ]
    commands += [
        layout.trim_through(client_id, serial, epoch=NOBODY_EPOCH)
        for client_id, serial in transaction.queue_trims.items()
    ]
    commands += [
        layout.append(client_id, entries, limit=QUEUE_LIMIT_MAX)
        for client_id, entries in transaction.appends.items()
    ]
    return commands


def encode_commands(commands: Sequence[Command]) -> bytes:
    """Commands as a journal."""
    return msgspec.msgpack.encode([(command.key, command.args) for command in commands])


def decode_commands(journal: bytes) -> list[Command]:
    """The commands of a journal."""
    try:
        found: list[tuple[bytes, list[Argument]]] = msgspec.msgpack.decode(journal)
    except ValueError as error:
        raise StorageCorrupt(f"the journal of the last transaction is broken: {error}") from error
    return [Command(tuple(args), key) for key, args in found]
