"""Hashes of as many tokens as a listpack holds, with the expiry in the value.

======================  ==================================================================
key                     value
======================  ==================================================================
``P:plan``              how many bits of an identifier number its partition (``plan``)
``P:BITS:NUMBER``       a hash: the rest of the identifier -> ``values.pack_short``
``P:BITS:h:HOUR``       a bitmap: partitions with a token that expires in that hour
``P:l:IDENTIFIER``      a token too long for a listpack, in MessagePack, by SETEX
``P:swept``             the last hour that was swept
``P:names``             the key under which lists name tokens (``handles``)
======================  ==================================================================

A look-up asks for the token and for the plan in one round trip; if the plan is another one than
this client knew, it asks again. So does whoever saves or revokes: what went to the wrong place is
moved by the one who put it there, before anybody is told that it was saved.

While partitions are split a token is in the old place or in the new one: the old one is read
first, and each partition moves in one step, so that nobody finds it in neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, final

import msgspec

from perdure.errors import ConfigError, StorageCorrupt
from perdure.storage.redis.client import RedisClient
from perdure.storage.redis.commands import Command, Reply, check
from perdure.tokens.redis.batches import count_fields, in_batches, numbers
from perdure.tokens.redis.handles import seal, unseal
from perdure.tokens.redis.keyed import SHORT_NAMES, literal, unpack
from perdure.tokens.redis.limits import ListpackLimits, learn_limits
from perdure.tokens.redis.listing import Naming, values_after
from perdure.tokens.redis.plan import (
    BITS_MAX,
    CLUSTER_BITS,
    HOUR_S,
    Plan,
    bits_for,
    field_of,
    is_crowded,
    parse_plan,
    partition_of,
)
from perdure.tokens.redis.scripts import FOLLOW, SPLIT, SWEEP
from perdure.tokens.store import TokenStore
from perdure.tokens.token import Listed, Token, listed
from perdure.tokens.values import (
    expiry_of,
    fields,
    is_stub,
    pack_short,
    pack_stub,
    unpack_short,
)

_SAMPLED: Final = 64
"""Partitions whose size tells how crowded all are."""

_SAVES_PER_LOOK: Final = 10_000
"""Tokens that a client saves before it looks whether partitions are crowded."""

_PLANS_MAX: Final = 100
"""Times that a plan may change under one call: each is a doubling."""


@final
class PlannedTokens(TokenStore):
    """The store; ``open`` finds or makes its plan.

    Args:
        client: a server or a cluster.
        prefix: of all keys, without its colon.
    """

    def __init__(self, client: RedisClient, prefix: bytes) -> None:
        self._client = client
        self._prefix = prefix
        self._plan_key = prefix + b":plan"
        self._swept_key = prefix + b":swept"
        self._naming = Naming(client, prefix + b":names")
        self.plan = Plan(0)
        self.entries_max, self._value_max = ListpackLimits()
        self._saved = 0
        self._has_long = False
        """Long tokens are about: look-ups ask for one beforehand."""
        self._growing = asyncio.Lock()

    async def open(self, expected: int, now_s: int) -> None:
        """Learn the server's limits and the plan, or make one.

        Args:
            expected: tokens that there will be, if there is no plan yet.
            now_s: Unix time, seconds.
        """
        self.entries_max, self._value_max = await learn_limits(self._client)
        bits = max(bits_for(expected, self.entries_max), self._bits_min)
        await self._client.execute(
            [
                Command(("SET", self._plan_key, Plan(bits).text(), "NX"), self._plan_key),
                Command(("SET", self._swept_key, now_s // HOUR_S - 1, "NX"), self._swept_key),
            ]
        )
        plan = parse_plan(await self._client.call(self._get_plan()))
        if plan is None:
            raise StorageCorrupt("the plan of the token store has gone")
        if plan.bits < self._bits_min:
            raise ConfigError("this token store was made for one server, not for a cluster")
        self.plan = plan

    @property
    def _bits_min(self) -> int:
        return CLUSTER_BITS if self._client.address.cluster else 0

    async def _save(self, tokens: Sequence[Token], now_s: int) -> None:
        plan = Plan(-1)
        for _ in range(_PLANS_MAX):
            before, plan = plan, self.plan
            commands: list[Command] = []
            for token in tokens:
                commands += self._put(token, plan, before, now_s)
            replies = await self._client.execute([*commands, self._get_plan()])
            for reply in replies[:-1]:
                check(reply)
            if self._is_still(plan, replies[-1]):
                break
        else:
            raise StorageCorrupt("the plan of the token store does not stand still")
        self._saved += len(tokens)
        if self._saved >= _SAVES_PER_LOOK:
            self._saved = 0
            await self._grow(now_s)

    def _put(self, token: Token, plan: Plan, before: Plan, now_s: int) -> Iterator[Command]:
        """Save a token by a plan, and take it away from where an older plan had put it."""
        bits = plan.bits + plan.is_splitting
        hour = self._hour_key(bits, token.expires_at // HOUR_S)
        yield Command(("SETBIT", hour, partition_of(token.id, bits), 1), hour)
        value = pack_short(token)
        long = self._long_key(token.id)
        if len(value) > self._value_max:
            value = pack_stub(token)
            whole = msgspec.msgpack.encode(fields(token, SHORT_NAMES))
            yield Command(("SETEX", long, token.expires_at - now_s, whole), long)
        key, field = self._place(token.id, bits)
        yield Command(("HSET", key, field, value), key)
        old = {plan.bits, before.bits, before.bits + before.is_splitting} - {bits, -1}
        for other in sorted(old):
            key, field = self._place(token.id, other)
            yield Command(("HDEL", key, field), key)

    async def find(self, token_id: bytes, now_s: int) -> Token | None:
        key = self._long_key(token_id)
        for _ in range(_PLANS_MAX):
            plan = self.plan
            also = [Command(("GET", key), key)] if self._has_long else []
            *found, plan_reply = await self._client.execute(
                [*also, *self._each(token_id, plan, "HGET"), self._get_plan()]
            )
            long = check(found.pop(0)) if also else None
            values = [check(reply) for reply in found]
            # The newer place has the newer value.
            data = next((value for value in reversed(values) if value is not None), None)
            if self._is_still(plan, plan_reply):
                break
        if data is None:
            return None
        if not isinstance(data, bytes):
            raise StorageCorrupt("a value of a token is no text")
        if expiry_of(data) <= now_s:
            return None
        if also and is_stub(data):
            return unpack(token_id, long) if isinstance(long, bytes) else None
        return await self._whole(token_id, data)

    async def _whole(self, token_id: bytes, data: bytes) -> Token | None:
        """The token of a value, wherever the rest of it is."""
        if not is_stub(data):
            return unpack_short(token_id, data)
        self._has_long = True
        key = self._long_key(token_id)
        long = await self._client.call(Command(("GET", key), key))
        return unpack(token_id, long) if isinstance(long, bytes) else None

    async def revoke(self, token_id: bytes) -> bool:
        long = self._long_key(token_id)
        removed = False
        for _ in range(_PLANS_MAX):
            plan = self.plan
            *found, plan_reply = await self._client.execute(
                [
                    Command(("DEL", long), long),
                    *self._each(token_id, plan, "HDEL"),
                    self._get_plan(),
                ]
            )
            removed = sum(bool(check(reply)) for reply in found) > 0 or removed
            if self._is_still(plan, plan_reply):
                break
        return removed

    async def handle(self, token_id: bytes) -> str:
        return seal(await self._naming.key(), token_id)

    async def page(self, after: str, limit: int, now_s: int) -> tuple[list[Listed], str]:
        names = await self._naming.key()
        last = unseal(names, after) if after else b""
        if last is None:
            raise ValueError("no place in this store")
        plan = parse_plan(await self._client.call(self._get_plan())) or self.plan
        values, end = await values_after(self._client, self, plan, last, now_s, limit)
        found: list[Listed] = []
        for token_id, value in list(values.items())[:limit]:
            token = await self._whole(token_id, value)
            if token is not None:
                found.append(listed(seal(names, token_id), token))
        if len(values) > limit:
            return found, seal(names, list(values)[limit - 1])
        return found, "" if end is None else seal(names, end)

    async def revoke_handle(self, handle: str, now_s: int) -> Listed | None:
        token_id = unseal(await self._naming.key(), handle)
        token = None if token_id is None else await self.find(token_id, now_s)
        if token is None or not await self.revoke(token.id):
            return None
        return listed(handle, token)

    async def maintain(self, now_s: int) -> int:
        """Sweep the hours that are over, and double the partitions where they are crowded.

        May be called by several at once, and goes on where another has died.
        """
        await self._grow(now_s)
        reply = await self._client.call(Command(("GET", self._swept_key), self._swept_key))
        if not isinstance(reply, bytes):
            raise StorageCorrupt("the token store does not say what was swept")
        removed = 0
        for hour in range(int(reply) + 1, now_s // HOUR_S):
            removed += await self._sweep(hour, now_s)
            await self._client.call(Command(("SET", self._swept_key, hour), self._swept_key))
        return removed

    async def count(self) -> int:
        bits = {self.plan.bits, self.plan.bits + self.plan.is_splitting}
        return sum([await count_fields(self._client, self._keys(each)) for each in bits])

    async def close(self) -> None:
        await self._client.close()

    # Growing.

    async def _grow(self, now_s: int) -> None:
        """Double the partitions until they are not crowded; end what another has begun."""
        async with self._growing:
            while True:
                plan = parse_plan(await self._client.call(self._get_plan()))
                if plan is None:
                    raise StorageCorrupt("the plan of the token store has gone")
                self.plan = plan
                if plan.is_splitting:
                    await self._split_all(plan.bits, now_s)
                    following = Plan(plan.bits + 1)
                elif plan.bits >= BITS_MAX or not is_crowded(await self._mean(), self.entries_max):
                    return
                else:
                    following = Plan(plan.bits, is_splitting=True)
                if await self._follow(plan, following) and plan.is_splitting:
                    # Who did not know of the new plan has put it in the old place once more.
                    await self._split_all(plan.bits, now_s)
                    await self._forget_hours(plan.bits)

    async def _follow(self, plan: Plan, following: Plan) -> bool:
        """Change the plan; False if somebody else has."""
        key = self._plan_key
        command = ("EVALSHA", FOLLOW.sha, 1, key, plan.text(), following.text())
        return bool(await self._client.call(Command(command, key)))

    async def _mean(self) -> float:
        """Entries of a partition, by some that stand for all: identifiers are random."""
        keys = list(islice(self._keys(self.plan.bits), _SAMPLED))
        sizes = await numbers(self._client, [Command(("HLEN", key), key) for key in keys])
        return sum(sizes) / len(sizes)

    async def _split_all(self, bits: int, now_s: int) -> None:
        for page in in_batches(range(1 << bits)):
            olds = [self._key(bits, number) for number in page]
            replies = await self._client.execute([Command(("HVALS", key), key) for key in olds])
            marks: list[Command] = []
            for number, reply in zip(page, replies, strict=True):
                values = check(reply)
                assert isinstance(values, list)
                hours = {expiry_of(value) // HOUR_S for value in values if isinstance(value, bytes)}
                for hour in sorted(hours):
                    key = self._hour_key(bits + 1, hour)
                    marks += (
                        Command(("SETBIT", key, 2 * number, 1), key),
                        Command(("SETBIT", key, 2 * number + 1, 1), key),
                    )
            for reply in await self._client.execute(marks):
                check(reply)
            moves = [
                Command(
                    (
                        *("EVALSHA", SPLIT.sha, 3, old, self._key(bits + 1, 2 * number)),
                        *(self._key(bits + 1, 2 * number + 1), bits % 8),
                    ),
                    old,
                )
                for number, old in zip(page, olds, strict=True)
            ]
            await numbers(self._client, moves)

    async def _forget_hours(self, bits: int) -> None:
        """The marks of a plan that has ended."""
        pattern = literal(self._prefix) + b":%d:h:*" % bits
        async for page in self._client.scan(pattern):
            for reply in await self._client.execute(
                [Command(("UNLINK", key), key) for key in page]
            ):
                check(reply)

    # Sweeping.

    async def _sweep(self, hour: int, now_s: int) -> int:
        """Remove what has expired in the partitions that are marked for an hour."""
        bits = self.plan.bits
        key = self._hour_key(bits, hour)
        marks = await self._client.call(Command(("GET", key), key))
        if marks is None:
            return 0
        assert isinstance(marks, bytes)
        removed = 0
        for page in in_batches(_ones(marks)):
            commands = []
            for number in page:
                place = self._key(bits, number)
                commands.append(Command(("EVALSHA", SWEEP.sha, 1, place, now_s), place))
            removed += sum(await numbers(self._client, commands))
        await self._client.call(Command(("UNLINK", key), key))
        return removed

    # Places.

    def _key(self, bits: int, number: int) -> bytes:
        if not self._client.address.cluster:
            return self._prefix + b":%d:%d" % (bits, number)
        tag = number >> (bits - CLUSTER_BITS)
        return b"{%b%d}:%d:%d" % (self._prefix, tag, bits, number)

    def _keys(self, bits: int) -> Iterator[bytes]:
        return (self._key(bits, number) for number in range(1 << bits))

    def _hour_key(self, bits: int, hour: int) -> bytes:
        return self._prefix + b":%d:h:%d" % (bits, hour)

    def _long_key(self, token_id: bytes) -> bytes:
        return self._prefix + b":l:" + token_id

    def _place(self, token_id: bytes, bits: int) -> tuple[bytes, bytes]:
        return self._key(bits, partition_of(token_id, bits)), field_of(token_id, bits)

    def _each(self, token_id: bytes, plan: Plan, name: str) -> Iterator[Command]:
        """A command for each place that a token may be in, the old one first."""
        for bits in range(plan.bits, plan.bits + plan.is_splitting + 1):
            key, field = self._place(token_id, bits)
            yield Command((name, key, field), key)

    def key_of(self, bits: int, number: int) -> bytes:
        """The hash of a partition."""
        return self._key(bits, number)

    # The plan.

    def _get_plan(self) -> Command:
        return Command(("GET", self._plan_key), self._plan_key)

    def _is_still(self, plan: Plan, reply: Reply) -> bool:
        """Whether the plan is the one that was gone by; what is new is known from now on."""
        found = parse_plan(check(reply))
        if found is None:
            raise StorageCorrupt("the plan of the token store has gone")
        self.plan = found
        return found == plan


def _ones(marks: bytes) -> Iterator[int]:
    """The bits that SETBIT has set."""
    for place, byte in enumerate(marks):
        for bit in range(8):
            if byte & 0x80 >> bit:
                yield 8 * place + bit
