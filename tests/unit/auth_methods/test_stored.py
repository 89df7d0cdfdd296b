"""Users that a server keeps, on a real Redis and a real PostgreSQL alike."""

from __future__ import annotations

import asyncio
import hashlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from perdure.auth_methods import postgres, redis, stored
from perdure.auth_methods.stored import StoredPasswords, StoredUsers
from perdure.broker.auth.authenticate import AuthRequest
from perdure.broker.auth.grant import Grant, grant_of
from perdure.broker.auth.hashes import Pbkdf2Hash, ScryptHash, TokenHash
from perdure.broker.auth.method import MethodUnavailable, UnusableAnswer
from perdure.config.schema.auth_methods import PostgresAuthConfig, RedisAuthConfig
from perdure.errors import ConfigError
from tests import servers
from tests.support.bounds import HANG_S
from tests.support.clock import VirtualClock
from tests.unit.auth_methods.helpers import Told, asking, make_context


def hashed(password: str, salt: bytes = b"salt") -> str:
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, 1)
    return Pbkdf2Hash(1, salt, digest).encode()


class Store(ABC):
    """A server with users, and a method that looks there."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.told = Told()
        self.methods: list[StoredUsers] = []

    @abstractmethod
    async def put(self, user: str, *hashes: str, superuser: bool = False) -> None: ...

    @abstractmethod
    async def drop(self, user: str) -> None: ...

    @abstractmethod
    async def rule(self, user: str, permission: str, topic: str) -> None: ...

    @abstractmethod
    def make(self, **changes: Any) -> StoredUsers: ...

    async def close(self) -> None:
        for method in self.methods:
            await method.close()


class RedisStore(Store):
    def __init__(self) -> None:
        super().__init__()
        self.url, self.prefix = servers.redis().url, servers.redis_prefix()

    async def put(self, user: str, *hashes: str, superuser: bool = False) -> None:
        fields = ["password_hash", " ".join(hashes), "is_superuser", str(int(superuser))]
        servers.redis().command("HSET", f"{self.prefix}:user:{user}", *fields)

    async def drop(self, user: str) -> None:
        servers.redis().command("DEL", f"{self.prefix}:user:{user}")

    async def rule(self, user: str, permission: str, topic: str) -> None:
        servers.redis().command("HSET", f"{self.prefix}:acl:{user}", topic, permission)

    def make(self, **changes: Any) -> StoredUsers:
        keys = {"user_key": f"{self.prefix}:user:%u", "acl_key": f"{self.prefix}:acl:%u"}
        settings = RedisAuthConfig(**({"url": self.url} | keys | changes))
        context = make_context("redis", clock=self.clock, changed=self.told)
        self.methods.append(redis.open_method(settings, context))
        return self.methods[-1]


class PostgresStore(Store):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url

    async def setup(self) -> None:
        await self.run(
            "CREATE TABLE mqtt_user (username text, password_hash text, is_superuser boolean)"
        )
        await self.run("CREATE TABLE mqtt_acl (username text, permission text, topic text)")

    async def run(self, sql: str, *values: Any) -> None:
        connection = await asyncpg.connect(self.url)
        await connection.execute(sql, *values)
        await connection.close()

    async def put(self, user: str, *hashes: str, superuser: bool = False) -> None:
        await self.drop(user)
        for each in hashes:
            await self.run("INSERT INTO mqtt_user VALUES ($1, $2, $3)", user, each, superuser)

    async def drop(self, user: str) -> None:
        await self.run("DELETE FROM mqtt_user WHERE username = $1", user)

    async def rule(self, user: str, permission: str, topic: str) -> None:
        await self.run("INSERT INTO mqtt_acl VALUES ($1, $2, $3)", user, permission, topic)

    def make(self, **changes: Any) -> StoredUsers:
        acl = "SELECT permission, topic FROM mqtt_acl WHERE username = $1 ORDER BY topic"
        settings = PostgresAuthConfig(**({"url": self.url, "acl_query": acl} | changes))
        context = make_context("postgres", clock=self.clock, changed=self.told)
        self.methods.append(postgres.open_method(settings, context))
        return self.methods[-1]


@pytest.fixture(autouse=True)
def quick_decoy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is unknown costs what a password costs: here little."""
    monkeypatch.setattr(stored, "_DECOY", ScryptHash(2, 1, 1, bytes(16), bytes(32)))


@pytest.fixture(
    params=[
        pytest.param("redis", marks=pytest.mark.redis),
        pytest.param("postgres", marks=pytest.mark.postgres),
    ]
)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    store: Store
    if request.param == "redis":
        store = await asyncio.to_thread(RedisStore)
    else:
        store = PostgresStore(await asyncio.to_thread(servers.postgres_place))
        await store.setup()
    yield store
    await store.close()


async def test_a_password_or_a_token(store: Store) -> None:
    token = "t" * 43
    await store.put(
        "ada", hashed("pw"), TokenHash(hashlib.sha256(token.encode()).digest()).encode()
    )
    method = store.make()
    for secret in ("pw", token, "pw"):
        result = await method.authenticate(asking("ada", secret))
        assert (result.ok, result.username, result.superuser) == (True, "ada", False)
    for secret in ("no", "", token[1:]):
        result = await method.authenticate(asking("ada", secret))
        assert (result.ok, result.reason_code, result.undecided) == (False, 0x86, False)
    assert (await method.authenticate(asking("ada", None))).reason_code == 0x86
    assert (await method.authenticate(asking(None, "pw"))).undecided


@pytest.mark.parametrize("name", ["bob", "ad%", "a' OR '1'='1", "ada\n", "a\0b", "%c", "*", "ADA"])
async def test_a_name_is_a_name_and_nothing_else(store: Store, name: str) -> None:
    await store.put("ada", hashed("pw"))
    assert (await store.make().authenticate(asking(name, "pw"))).reason_code == 0x86
    leaving = store.make(unknown_user="ignore")
    assert (await leaving.authenticate(asking(name, "pw"))).undecided
    assert (await leaving.authenticate(asking("ada", "no"))).reason_code == 0x86


async def test_what_a_user_may_do(store: Store) -> None:
    await store.put("ada", hashed("pw"))
    await store.rule("ada", "read", "a/#")
    await store.rule("ada", "deny", "b c")
    method = store.make()
    result = await method.authenticate(asking("ada", "pw"))
    assert isinstance(result.grant, Grant)
    assert set(result.grant.rules) == set(grant_of(["read a/#", "deny b c"]).rules)
    await store.put("bob", hashed("pw"))
    assert (await method.authenticate(asking("bob", "pw"))).grant == Grant()
    await store.put("root", hashed("pw"), superuser=True)
    root = await method.authenticate(asking("root", "pw"))
    assert (root.superuser, root.grant) == (True, Grant((), superuser=True))
    empty = {"acl_key": ""} if isinstance(store, RedisStore) else {"acl_query": ""}
    silent = store.make(**empty)
    assert (await silent.authenticate(asking("ada", "pw"))).grant is None


@pytest.mark.parametrize("rule", [("fly", "a"), ("read", "a/#/b"), ("read", "")])
async def test_a_rule_that_is_none_lets_nobody_in(store: Store, rule: tuple[str, str]) -> None:
    await store.put("ada", hashed("pw"))
    await store.rule("ada", *rule)
    with pytest.raises(UnusableAnswer):
        await store.make().authenticate(asking("ada", "pw"))


async def test_rules_are_bounded(store: Store) -> None:
    await store.put("ada", hashed("pw"))
    for number in range(3):
        await store.rule("ada", "read", f"t{number}")
    assert (await store.make(acl_rows_max=3).authenticate(asking("ada", "pw"))).ok
    with pytest.raises(UnusableAnswer):
        await store.make(acl_rows_max=2).authenticate(asking("ada", "pw"))


async def test_hashes_that_cannot_be_read_fit_nothing(store: Store) -> None:
    await store.put("ada", "pw", "$md5$x", hashed("other"))
    method = store.make()
    assert not (await method.authenticate(asking("ada", "pw"))).ok
    assert (await method.authenticate(asking("ada", "other"))).ok


async def test_who_is_connected_is_held_to_what_is_there_now(store: Store) -> None:
    await store.put("ada", hashed("pw"))
    await store.rule("ada", "read", "a")
    method = store.make(recheck_s=60)
    login = await method.authenticate(asking("ada", "pw"))
    assert login.recheck_us == 60_000_000
    store.clock.advance_us(7)
    await store.rule("ada", "write", "b")
    renewed = await method.renew(asking("ada", None), login.proof)
    assert (renewed.ok, renewed.recheck_us) == (True, 60_000_007)
    assert isinstance(renewed.grant, Grant)
    assert len(renewed.grant.rules) == 2
    await store.put("ada", hashed("pw", b"newsalt"))
    assert (await method.renew(asking("ada", None), login.proof)).reason_code == 0x87
    again = await method.authenticate(asking("ada", "pw"))
    await store.drop("ada")
    assert (await method.renew(asking("ada", None), again.proof)).reason_code == 0x87
    assert (await store.make(recheck_s=0).renew(asking("ada", None), None)).reason_code == 0x87


async def test_a_server_that_is_away(store: Store) -> None:
    scheme = "redis" if isinstance(store, RedisStore) else "postgresql"
    method = store.make(url=f"{scheme}://127.0.0.1:1/0", timeout_ms=200)
    with pytest.raises(MethodUnavailable):
        await method.authenticate(asking("ada", "pw"))
    with pytest.raises(MethodUnavailable):
        await method.renew(asking("ada", None), "x")


@pytest.mark.postgres
async def test_a_channel_tells_of_users_that_have_changed() -> None:
    store = PostgresStore(await asyncio.to_thread(servers.postgres_place))
    await store.setup()
    heard: asyncio.Queue[str | None] = asyncio.Queue()
    context = make_context("postgres")
    object.__setattr__(context, "changed", heard.put_nowait)
    settings = PostgresAuthConfig(url=store.url, notify_channel="perdure users")
    method = postgres.open_method(settings, context)
    await method.start()
    connection = await asyncpg.connect(store.url)
    try:
        # Whether it listens yet can only be seen by what it hears.
        async with asyncio.timeout(HANG_S):
            while heard.empty():
                await connection.execute("SELECT pg_notify('perdure users', 'ada')")
                await asyncio.sleep(0.01)
        assert await heard.get() == "ada"
        while not heard.empty():
            heard.get_nowait()
        await connection.execute("SELECT pg_notify('perdure users', '')")
        async with asyncio.timeout(HANG_S):
            while (said := await heard.get()) == "ada":
                pass
        assert said is None
    finally:
        await connection.close()
        await method.close()


@pytest.mark.postgres
@pytest.mark.parametrize(
    "query",
    [
        "SELECT username FROM mqtt_user WHERE username = $1",
        "SELECT password_hash FROM nowhere WHERE username = $1",
        "SELECT generate_series(1, 100)::text AS password_hash, $1::text",
        "nonsense $1",
    ],
)
async def test_a_query_that_cannot_be_used_lets_nobody_in(query: str) -> None:
    store = PostgresStore(await asyncio.to_thread(servers.postgres_place))
    await store.setup()
    await store.put("ada", hashed("pw"))
    with pytest.raises(MethodUnavailable):
        await store.make(user_query=query).authenticate(asking("ada", "pw"))
    await store.close()


@pytest.mark.postgres
async def test_the_client_identifier_may_be_asked_for() -> None:
    store = PostgresStore(await asyncio.to_thread(servers.postgres_place))
    await store.setup()
    await store.put("ada/c", hashed("pw"))
    query = "SELECT password_hash FROM mqtt_user WHERE username = $1 || '/' || $2"
    method = store.make(user_query=query)
    assert (await method.authenticate(asking("ada", "pw", client_id="c"))).ok
    assert not (await method.authenticate(asking("ada", "pw", client_id="d"))).ok
    await store.close()


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        (PostgresAuthConfig(url="mysql://x"), "auth.postgres.url"),
        (PostgresAuthConfig(user_query="SELECT 1"), "auth.postgres.user_query"),
        (PostgresAuthConfig(acl_query="SELECT $1; DROP TABLE x"), "auth.postgres.acl_query"),
        (RedisAuthConfig(url="http://x"), "auth.redis.url"),
        (RedisAuthConfig(user_key="users"), "auth.redis.user_key"),
        (RedisAuthConfig(acl_key="rules"), "auth.redis.acl_key"),
    ],
)
def test_settings_that_cannot_be_used(settings: Any, path: str) -> None:
    module = redis if isinstance(settings, RedisAuthConfig) else postgres
    with pytest.raises(ConfigError) as caught:
        module.open_method(settings, make_context("store"))
    assert caught.value.path == path


async def test_right_passwords_are_remembered_with_the_hash_that_they_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked: list[bytes] = []

    def verify(hashes: tuple[Any, ...], decoys: tuple[Any, ...], password: bytes) -> Any:
        checked.append(password)
        return next((entry for entry in hashes if entry.verify(password)), None)

    monkeypatch.setattr("perdure.auth_methods.stored.verify_password", verify)
    passwords = StoredPasswords(make_context("m"), cache_max=2)
    one, two = hashed("pw"), hashed("pw", b"other")
    assert [await passwords.fits([one], b"pw") for _ in range(3)] == [one] * 3
    assert len(checked) == 1
    assert await passwords.fits([two], b"pw") == two
    assert await passwords.fits([one], b"no") is None
    assert len(checked) == 3
    for text in (hashed("pw", b"a"), hashed("pw", b"b")):
        await passwords.fits([text], b"pw")
    await passwords.fits([one], b"pw")
    assert len(checked) == 6
    passwords.forget()
    await passwords.fits([one], b"pw")
    assert len(checked) == 7
    passwords.close()


async def test_an_unknown_user_costs_what_a_known_one_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paid: list[set[int]] = []

    def verify(hashes: tuple[Any, ...], decoys: tuple[Any, ...], password: bytes) -> None:
        paid.append({getattr(entry, "iterations", 0) for entry in (*hashes, *decoys)})

    monkeypatch.setattr("perdure.auth_methods.stored.verify_password", verify)
    passwords = StoredPasswords(make_context("m"), cache_max=2)
    await passwords.fits([], b"no")
    await passwords.fits([hashed("pw")], b"no")
    await passwords.fits([], b"no")
    assert paid == [{0}, {0, 1}, {0, 1}]
    passwords.close()


def test_requests_have_no_secret_in_a_key() -> None:
    request: AuthRequest = asking("%c", "pw", client_id="%u")
    assert redis._key("u:%u:%c", request) == b"u:%c:%u"
