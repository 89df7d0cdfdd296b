"""Stores of tokens: the embedded one, and each layout on a real Redis, by one contract."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from perdure.errors import ConfigError, StorageCorrupt
from perdure.storage.redis import RedisClient, parse_url
from perdure.storage.redis.commands import Command
from perdure.storebench.servers.redis import RedisServer
from perdure.tokens import LAYOUTS, Listed, Token, TokenStore, open_tokens
from perdure.tokens.embedded import EmbeddedTokens
from perdure.tokens.redis.plan import HOUR_S, Plan
from perdure.tokens.redis.planned import PlannedTokens
from perdure.tokens.token import listed
from tests import servers
from tests.support.redis_cluster import RedisCluster

NOW_S = int(time.time())
"""Redis expires keys by its own clock."""
LATER_S = NOW_S + 30 * 24 * HOUR_S
CLUSTER = "planned in a cluster"
PLACES = [
    "embedded",
    *(pytest.param(layout, marks=pytest.mark.redis) for layout in (*LAYOUTS, CLUSTER)),
]


def token(number: int, expires_at: int = LATER_S, **parts: object) -> Token:
    """The token with a number; the number is spread over its first bits."""
    token_id = random.Random(number).randbytes(20)
    return Token(token_id, str(number), expires_at, **parts)  # type: ignore[arg-type]


FULL = token(7, client_id="pump-*", rights=("read public/#", "write devices/%c/é"))
LONG = token(8, client_id="p" * 255, rights=tuple(f"read {n}/" + "x" * 900 for n in range(64)))


@asynccontextmanager
async def opened(url: str, prefix: str, *, expected: int = 0) -> AsyncIterator[PlannedTokens]:
    store = await open_tokens(url, prefix=prefix, expected=expected, now_s=NOW_S)
    assert isinstance(store, PlannedTokens)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[TokenStore]:
    place: str = request.param
    url, layout = str(tmp_path / "tokens.db"), "planned"
    if place != "embedded":
        url = servers.redis_cluster().url if place == CLUSTER else servers.redis().url
        layout = place if place in LAYOUTS else "planned"
    prefix = f"{servers.redis_prefix()}[*:"  # means itself, not a pattern
    made = await open_tokens(url, layout=layout, prefix=prefix, now_s=NOW_S)
    yield made
    await made.close()


each = pytest.mark.parametrize("store", PLACES, indirect=True)


@each
async def test_what_is_saved_is_found_whole(store: TokenStore) -> None:
    name = token(9)
    saved = [
        *(token(number) for number in (0, 1, 255, 256, 2**40)),
        *(Token(name.id, identity, LATER_S) for identity in ("007", "grüße", "1" * 255, "-1")),
        FULL,
        LONG,
    ]
    for one in saved:
        await store.save([one], NOW_S)
        assert await store.find(one.id, NOW_S) == one
    await store.save([], NOW_S)
    assert await store.count() >= 7
    assert await store.find(token(99).id, NOW_S) is None


@each
async def test_a_token_is_replaced_as_a_whole(store: TokenStore) -> None:
    await store.save([FULL], NOW_S)
    plain = Token(FULL.id, "another", LATER_S + 5)
    await store.save([plain], NOW_S)
    assert await store.find(FULL.id, NOW_S) == plain
    assert await store.count() == 1


@each
async def test_a_revoked_token_is_gone_and_so_is_an_expired_one(store: TokenStore) -> None:
    for one in (FULL, LONG):
        await store.save([one], NOW_S)
        assert await store.revoke(one.id)
        assert not await store.revoke(one.id)
        assert await store.find(one.id, NOW_S) is None
    await store.save([token(1, NOW_S + 50)], NOW_S)
    assert await store.find(token(1).id, NOW_S + 49) is not None
    assert await store.find(token(1).id, NOW_S + 50) is None


@each
async def test_pages_show_what_holds_and_names_revoke_it(store: TokenStore) -> None:
    if type(store) not in (EmbeddedTokens, PlannedTokens):
        with pytest.raises(ConfigError, match="not listed"):
            await store.page("", 10, NOW_S)
        return
    numbers = (number for number in range(42) if number not in (7, 8))
    saved = {each.id: each for each in (*map(token, numbers), FULL, LONG)}
    await store.save([*saved.values(), token(99, NOW_S + 5)], NOW_S)
    found: dict[str, Listed] = {}
    after, pages = "", 0
    while pages == 0 or after:
        items, after = await store.page(after, 7, NOW_S + 6)
        assert len(items) <= 7
        assert not found.keys() & {each.handle for each in items}
        found |= {each.handle: each for each in items}
        pages += 1
    assert found == {
        await store.handle(each.id): listed(await store.handle(each.id), each)
        for each in saved.values()
    }
    assert not any(each.id.hex() in handle for handle in found for each in saved.values())
    name = await store.handle(LONG.id)
    assert await store.revoke_handle(name, NOW_S) == listed(name, LONG)
    assert await store.revoke_handle(name, NOW_S) is None
    assert await store.find(LONG.id, NOW_S) is None
    for wrong in ("", "x", LONG.id.hex(), "0" * 64, name[:-1] + ("0" if name[-1] != "0" else "1")):
        assert await store.revoke_handle(wrong, NOW_S) is None
    with pytest.raises(ValueError, match=r"hex|place"):
        await store.page("no place", 7, NOW_S)


@each
async def test_maintenance_removes_what_has_expired_and_nothing_else(store: TokenStore) -> None:
    short = [token(number, NOW_S + 60) for number in range(700)]
    kept = [token(number) for number in range(700, 900)]
    renewed = token(3, LATER_S)
    await store.save([*short, *kept], NOW_S)
    await store.save([renewed], NOW_S)
    assert await store.count() == 900
    later_s = NOW_S + 2 * HOUR_S
    removed = await store.maintain(later_s)
    assert removed in (0, 699)  # 0 where the server expires keys itself
    assert await store.maintain(later_s) == 0
    for one in (*kept, renewed):
        assert await store.find(one.id, later_s) == one
    if removed:
        assert await store.count() == 201


@each
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (Token(b"short", "u", LATER_S), "20 bytes"),
        (Token(bytes(20), "", LATER_S), "identity"),
        (Token(bytes(20), "u" * 256, LATER_S), "identity"),
        (Token(bytes(20), "u", NOW_S), "in the future"),
        (Token(bytes(20), "u", 1 << 32), "2106"),
        (Token(bytes(20), "u", LATER_S, "c" * 256), "pattern"),
        (Token(bytes(20), "u", LATER_S, "", ("read a",) * 65), "rights"),
        (Token(bytes(20), "u", LATER_S, "", ("read " + "a" * 1024,)), "right"),
    ],
)
async def test_what_cannot_be_kept_is_refused_whole(
    store: TokenStore, wrong: Token, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        await store.save([token(1), wrong], NOW_S)
    assert await store.count() == 0


async def test_an_embedded_store_lasts_and_tells_no_token(tmp_path: Path) -> None:
    path = tmp_path / "tokens.db"
    store = await open_tokens(str(path), now_s=NOW_S)
    await store.save([FULL], NOW_S)
    await store.close()
    assert path.stat().st_mode & 0o077 == 0
    written = b"".join(one.read_bytes() for one in tmp_path.iterdir())
    assert FULL.id not in written
    assert FULL.id.hex().encode() not in written
    again = await open_tokens(str(path), now_s=NOW_S)
    assert await again.find(FULL.id, NOW_S) == FULL
    await again.close()
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(StorageCorrupt, match="damaged"):
        await open_tokens(str(path), now_s=NOW_S)


_DAMAGE = (
    "UPDATE tokens SET expires_at = expires_at + 1",
    "UPDATE tokens SET value = CAST(replace(value, CAST('alice' AS BLOB), 'alicf') AS BLOB)",
    "UPDATE tokens SET value = x''",
)


@pytest.mark.parametrize("damage", _DAMAGE)
async def test_a_damaged_row_is_no_token(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "tokens.db"
    store = await open_tokens(str(path), now_s=NOW_S)
    mine = Token(bytes(20), "alice", LATER_S)
    await store.save([mine], NOW_S)
    handle = await store.handle(mine.id)
    with contextlib.closing(sqlite3.connect(path)) as rows, rows:
        assert rows.execute(damage).rowcount == 1
    assert await store.find(mine.id, NOW_S) is None
    assert await store.page("", 10, NOW_S) == ([], "")
    assert await store.revoke_handle(handle, NOW_S) is None
    assert await store.count() == 0
    await store.close()


async def test_rows_without_checksums_are_given_them(tmp_path: Path) -> None:
    path = tmp_path / "tokens.db"
    store = await open_tokens(str(path), now_s=NOW_S)
    await store.save([FULL], NOW_S)
    await store.close()
    with contextlib.closing(sqlite3.connect(path)) as rows, rows:
        rows.execute("UPDATE tokens SET value = substr(value, 1, length(value) - 4)")
        rows.execute("PRAGMA user_version = 1")
    for _ in range(2):
        again = await open_tokens(str(path), now_s=NOW_S)
        assert await again.find(FULL.id, NOW_S) == FULL
        await again.close()


@pytest.fixture
def url() -> str:
    return servers.redis().url


@pytest.mark.redis
async def test_the_seeds_keys_are_as_the_seed_has_them() -> None:
    server = servers.redis()
    made = {}
    for layout in LAYOUTS[:-1]:
        prefix = f"{servers.redis_prefix()}:session:"
        store = await open_tokens(server.url, layout=layout, prefix=prefix, now_s=NOW_S)
        await store.save([token(5)], NOW_S)
        await store.close()
        made[layout] = prefix.encode()
    token_id = token(5).id
    hexed = token_id.hex().encode()
    with server.session() as ask:
        assert ask("GET", made["json"] + hexed) == b'{"identity_id":5,"expires_at":%d}' % LATER_S
        assert 0 < int(ask("TTL", made["json"] + hexed)) <= LATER_S - NOW_S
        packed = b"\x82\xa1i\x05\xa1x\xce" + LATER_S.to_bytes(4, "big")
        assert ask("GET", made["packed"] + token_id) == packed
        fields = ask("HGETALL", made["hash"] + token_id)
        assert fields == [b"i", b"5", b"x", b"%d" % LATER_S]
        assert int(ask("TTL", made["hash"] + token_id)) > 0
        for layout, digits in (("partitioned:256", 2), ("partitioned:65536", 4)):
            prefix, rest = made[layout], token_id[digits // 2 :]
            assert ask("HGET", prefix + b"data:" + hexed[:digits], rest) == packed
            score = ask("ZSCORE", prefix + b"expiry:" + hexed[:digits], rest)
            assert score == b"%d" % LATER_S


@pytest.mark.redis
async def test_a_renewed_token_is_not_swept_by_its_old_expiry(url: str) -> None:
    for layout in ("partitioned:256", "planned"):
        store = await open_tokens(url, layout=layout, prefix=servers.redis_prefix(), now_s=NOW_S)
        await store.save([token(1, NOW_S + 10)], NOW_S)
        await store.save([token(1, LATER_S)], NOW_S)
        assert await store.maintain(NOW_S + 5 * HOUR_S) == 0
        assert await store.find(token(1).id, NOW_S + 5 * HOUR_S) is not None
        await store.close()


@pytest.mark.redis
async def test_layouts_and_places_that_do_not_fit_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="no layout"):
        await open_tokens(url, layout="best", now_s=NOW_S)
    with pytest.raises(ConfigError, match="one server"):
        await open_tokens("redis+cluster://127.0.0.1:1", layout="partitioned:256", now_s=NOW_S)


# The planned layout.


@pytest.fixture(params=["server", "cluster"])
def place(request: pytest.FixtureRequest) -> RedisServer | RedisCluster:
    return servers.redis() if request.param == "server" else servers.redis_cluster()


@pytest.mark.redis
async def test_partitions_double_while_tokens_are_saved_found_and_revoked(
    place: RedisServer | RedisCluster,
) -> None:
    """Several clients with plans of any age, against a dictionary."""
    prefix = servers.redis_prefix()
    chance = random.Random(5)
    kept: dict[int, Token] = {}
    async with opened(place.url, prefix) as first, opened(place.url, prefix) as second:
        bits = first.plan.bits
        for store in (first, second):
            store.entries_max = 4
        for round_number in range(6):
            numbers = range(600 * round_number, 600 * (round_number + 1))

            async def use(store: PlannedTokens, mine: range) -> None:
                for number in mine:
                    one = token(number, LATER_S + number)
                    await store.save([one], NOW_S)
                    kept[number] = one
                    known = chance.choice(sorted(kept))
                    wanted = kept.get(known)
                    if wanted is not None and chance.random() < 0.2 and known in mine:
                        assert await store.revoke(wanted.id), known
                        del kept[known]
                    elif wanted is not None and known in mine:
                        assert await store.find(wanted.id, NOW_S) == wanted, known

            await asyncio.gather(
                use(first, numbers[:300]), use(second, numbers[300:]), second.maintain(NOW_S)
            )
        assert second.plan.bits >= bits + 2
        for number in range(3_600):
            assert await first.find(token(number).id, NOW_S) == kept.get(number)
        assert await first.count() == await second.count() == len(kept)
        assert first.plan == second.plan


@pytest.mark.redis
async def test_who_knows_an_old_plan_puts_nothing_in_the_old_place(url: str) -> None:
    prefix = servers.redis_prefix()
    async with opened(url, prefix) as old, opened(url, prefix) as new:
        new.entries_max = 4
        await new.save([token(number) for number in range(64)], NOW_S)
        await new.maintain(NOW_S)
        assert (old.plan, new.plan) == (Plan(0), Plan(5))
        await old.save([token(100)], NOW_S)
        assert old.plan == new.plan
        assert await new.find(token(100).id, NOW_S) == token(100)
        assert servers.redis().command("EXISTS", f"{prefix}:0:0") == 0
    async with opened(url, prefix, expected=10**6) as late:
        assert late.plan == Plan(5)  # what is there counts, not what is expected


@pytest.mark.redis
@pytest.mark.parametrize("bits", [7, 8])
async def test_a_split_that_somebody_began_is_ended(url: str, bits: int) -> None:
    """Also across a byte of the identifier: fields become shorter."""
    prefix = servers.redis_prefix()
    everything = [token(number, NOW_S + 60 + number % 7 * HOUR_S) for number in range(2_000)]
    async with opened(url, prefix, expected=int(106 * 2**bits)) as store:
        assert store.plan == Plan(bits)
        await store.save(everything, NOW_S)
        server = servers.redis()
        server.command("SET", f"{prefix}:plan", Plan(bits, is_splitting=True).text())
        for one in everything[:50]:
            assert await store.find(one.id, NOW_S) == one
        await store.save(everything[:20], NOW_S)  # in the new place already
        assert await store.count() == 2_000
        assert await store.maintain(NOW_S) == 0
        assert store.plan == Plan(bits + 1)
        for one in everything:
            assert await store.find(one.id, NOW_S) == one
        assert await store.count() == 2_000
        # What was marked for an hour before is swept in its hour.
        left = [one for one in everything if one.expires_at > NOW_S + 4 * HOUR_S]
        at_s = (NOW_S + 4 * HOUR_S) // HOUR_S * HOUR_S
        await store.maintain(at_s)
        assert len(left) <= await store.count() < 2_000
        await store.maintain(NOW_S + 9 * HOUR_S)
        assert await store.count() == 0


@pytest.mark.redis
async def test_a_plan_is_never_turned_back(url: str) -> None:
    prefix = servers.redis_prefix()
    async with opened(url, prefix) as one, opened(url, prefix) as two:
        one.entries_max = two.entries_max = 4
        await one.save([token(number) for number in range(64)], NOW_S)
        await asyncio.gather(*(store.maintain(NOW_S) for store in (one, two) for _ in range(3)))
        assert servers.redis().command("GET", f"{prefix}:plan") == b"5"
        assert await two.count() == 64


@pytest.mark.redis
async def test_partitions_stay_listpacks_and_a_look_up_is_one_round_trip(url: str) -> None:
    prefix = servers.redis_prefix()
    count = 20_000
    everything = [token(number) for number in range(count)]
    async with opened(url, prefix, expected=count) as store:
        await store.save([*everything[: count // 2], LONG], NOW_S)
        await store.save(everything[count // 2 :], NOW_S)
        with servers.redis().session() as ask:
            encodings = {
                bytes(ask("OBJECT", "ENCODING", f"{prefix}:{store.plan.bits}:{number}"))
                for number in range(1 << store.plan.bits)
            }
        assert encodings == {b"listpack"}
        batches = []
        execute = store._client.execute

        async def counted(commands: list[Command]) -> list[object]:
            batches.append(len(commands))
            return await execute(commands)  # type: ignore[return-value]

        store._client.execute = counted  # type: ignore[method-assign, assignment]
        assert await store.find(everything[5].id, NOW_S) == everything[5]
        assert len(batches) == 1
        # One of a long token as well, once there is known to be any.
        assert await store.find(LONG.id, NOW_S) == LONG
        batches.clear()
        assert await store.find(LONG.id, NOW_S) == LONG
        assert await store.find(everything[6].id, NOW_S) == everything[6]
        assert len(batches) == 2


@pytest.mark.redis
@pytest.mark.parametrize("kept", [b"", b"x", b"14>16", b"33", b"-1", b"014"])
async def test_a_plan_that_cannot_be_read_is_told(url: str, kept: bytes) -> None:
    prefix = servers.redis_prefix()
    servers.redis().command("SET", f"{prefix}:plan", kept)
    with pytest.raises(StorageCorrupt, match="plan"):
        await open_tokens(url, prefix=prefix, now_s=NOW_S)


@pytest.mark.redis
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_something_else_in_its_place_is_told(url: str, layout: str) -> None:
    prefix = servers.redis_prefix()
    store = await open_tokens(url, layout=layout, prefix=prefix, now_s=NOW_S)
    one = token(1)
    await store.save([one], NOW_S)
    client = await RedisClient.connect(parse_url(url))
    async for page in client.scan(f"{prefix}*".encode()):
        for key in page:
            kind = await client.call(Command(("TYPE", key), key))
            if kind == b"string" and not key.endswith((b":plan", b":swept")):
                await client.call(Command(("SET", key, "?"), key))
            elif kind == b"hash":
                for field in await client.call(Command(("HKEYS", key), key)):  # type: ignore[union-attr]
                    await client.call(Command(("HSET", key, field, "?"), key))
    await client.close()
    with pytest.raises(StorageCorrupt):
        await store.find(one.id, NOW_S)
    await store.close()
