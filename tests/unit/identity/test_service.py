"""Logins, keys and users: what holds, until when, and what is written down of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure.admin.problems import Refused
from perdure.admin.rights import Principal
from perdure.identity.ledger import Actor
from perdure.identity.service import Identity
from perdure.identity.setup import LINKS_MAX
from perdure.tokens.embedded import EmbeddedTokens
from tests.unit.identity.conftest import Hands

ADMIN = Actor(Principal("root", "admin", source="socket"))
PASSWORD = "correct horse battery"


def actor(address: str = "10.0.0.1") -> Actor:
    return Actor(Principal("?", "viewer", source="session", peer=address))


async def code_of(awaitable: object) -> str:
    with pytest.raises(Refused) as raised:
        await awaitable  # type: ignore[misc]
    return raised.value.problem.code


async def test_a_login_names_its_user_until_it_is_ended(identity: Identity) -> None:
    await identity.add_user("ada", "operator", PASSWORD, ADMIN)
    presented, user = await identity.login("ada", PASSWORD, actor())
    other, _ = await identity.login("ada", PASSWORD, actor())
    proof = await identity.of_login(presented, peer="10.0.0.1")
    assert proof is not None
    assert proof.principal == Principal("ada", "operator", source="session", peer="10.0.0.1")
    assert identity.holds(proof)
    await identity.logout(presented)
    assert not identity.holds(proof)
    assert await identity.of_login(presented) is None
    assert await identity.of_login(other) is not None
    assert user.name == "ada"


async def test_a_login_that_ended_is_not_brought_back_by_a_request_beside_it(
    identity: Identity, clock: Hands
) -> None:
    await identity.add_user("ada", "viewer", PASSWORD, ADMIN)
    presented, _ = await identity.login("ada", PASSWORD, actor())
    clock.us += 300_000_000
    store = await identity._logins._store.get(clock.us // 1_000_000)
    assert isinstance(store, EmbeddedTokens)
    save, reached, go_on = store._save, asyncio.Event(), asyncio.Event()

    async def held(tokens: object, now_s: int) -> None:
        reached.set()
        await go_on.wait()
        await save(tokens, now_s)  # type: ignore[arg-type]

    store._save = held  # type: ignore[method-assign, assignment]
    beside = asyncio.create_task(identity.of_login(presented))
    await reached.wait()
    await identity.logout(presented)
    go_on.set()
    await beside
    assert await identity.of_login(presented) is None


@pytest.mark.parametrize("change", ["set_role", "set_password", "end_logins", "remove"])
async def test_what_changes_of_a_user_holds_for_open_logins_at_once(
    identity: Identity, change: str
) -> None:
    await identity.add_user("root", "admin", PASSWORD, ADMIN)
    await identity.add_user("ada", "admin", PASSWORD, ADMIN)
    presented, _ = await identity.login("ada", PASSWORD, actor())
    proof = await identity.of_login(presented)
    assert proof is not None
    if change == "set_role":
        identity.users.set_role("ada", "viewer", ADMIN)
    elif change == "set_password":
        await identity.set_password("ada", PASSWORD + "2", ADMIN)
    else:
        getattr(identity.users, change)("ada", ADMIN)
    assert not identity.holds(proof)
    found = await identity.of_login(presented)
    if change == "set_role":
        assert found is not None
        assert found.principal.role == "viewer"
    else:
        assert found is None
    if change == "remove":
        # A new user of the same name inherits no login.
        identity.ledger.clock.us += 1  # type: ignore[attr-defined]
        await identity.add_user("ada", "admin", PASSWORD, ADMIN)
        assert await identity.of_login(presented) is None


async def test_a_login_ends_when_idle_and_when_old(identity: Identity, clock: Hands) -> None:
    await identity.add_user("ada", "viewer", PASSWORD, ADMIN)
    idle, _ = await identity.login("ada", PASSWORD, actor())
    used, _ = await identity.login("ada", PASSWORD, actor())
    watched, _ = await identity.login("ada", PASSWORD, actor())
    proof = None
    for _ in range(6):  # 3,000 s, of which none is a pause of 600
        clock.us += 500_000_000
        proof = await identity.of_login(used) or proof
        await identity.of_login(watched, prolongs=False)
    assert proof is not None
    assert await identity.of_login(idle) is None
    assert await identity.of_login(watched) is None
    assert identity.holds(proof)
    clock.us += 590_000_000
    assert await identity.of_login(used) is not None
    clock.us += 10_000_000
    assert await identity.of_login(used) is None
    assert not identity.holds(proof)
    await identity.maintain()


async def test_failed_logins_wait_longer_and_a_success_clears_them(
    identity: Identity, clock: Hands
) -> None:
    await identity.add_user("ada", "viewer", PASSWORD, ADMIN)
    for _ in range(5):
        assert await code_of(identity.login("ada", "wrong password", actor())) == "unauthorized"
    with pytest.raises(Refused) as raised:
        await identity.login("ada", PASSWORD, actor())
    assert raised.value.problem.code == "too_many_requests"
    assert raised.value.problem.details == {"retry_after_s": 1}
    # Somebody else, elsewhere, is not kept out by it; neither by another address of that network.
    await identity.login("ada", PASSWORD, actor("10.0.0.2"))
    clock.us += 1_000_000
    assert await code_of(identity.login("ada", "wrong password", actor())) == "unauthorized"
    assert await code_of(identity.login("ada", PASSWORD, actor())) == "too_many_requests"
    clock.us += 2_000_000
    await identity.login("ada", PASSWORD, actor())
    await identity.login("ada", PASSWORD, actor())
    # At once: all are counted before one is checked.
    tried = [code_of(identity.login("eve", f"guess no {n}", actor("::1"))) for n in range(12)]
    codes = await asyncio.gather(*tried)
    assert codes.count("unauthorized") == 5
    # IPv6: a network of one machine is one.
    assert await code_of(identity.login("x", "y", actor("::2"))) == "too_many_requests"


async def test_a_key_holds_until_it_expires_or_is_revoked(identity: Identity, clock: Hands) -> None:
    key, secret = identity.keys.add(
        "archive", "viewer", ADMIN, scopes=("sessions",), topic_filters=("plant/#",)
    )
    short, short_secret = identity.keys.add(
        "short", "operator", ADMIN, expires_at_us=clock.us + 1_000_000
    )
    proof = await identity.of_key(secret, peer="10.0.0.9")
    assert proof is not None
    assert proof.principal == Principal(
        key.id, "viewer", ("sessions",), "api_key", "10.0.0.9", ("plant/#",)
    )
    other = await identity.of_key(short_secret)
    assert other is not None
    assert identity.holds(other)
    clock.us += 1_000_000
    assert not identity.holds(other)
    assert await identity.of_key(short_secret) is None
    assert await identity.of_key(secret[:-1] + ("A" if secret[-1] != "A" else "B")) is None
    assert await identity.of_key("pk_zzz") is None
    identity.keys.revoke(key.id, ADMIN)
    assert not identity.holds(proof)
    assert await identity.of_key(secret) is None
    assert [each.id for each in identity.keys.all()] == [short.id]
    with pytest.raises(Refused):
        identity.keys.add("x", "viewer", ADMIN, topic_filters=("a/#/b",))
    with pytest.raises(Refused):
        identity.keys.add("x", "viewer", ADMIN, scopes=("everything",))


async def test_the_setup_link_makes_one_administrator_once(
    identity: Identity, clock: Hands
) -> None:
    dated = identity.setup.offer()
    token = identity.setup.offer()
    assert await code_of(identity.redeem(dated, "ada", PASSWORD, actor())) == "unauthorized"
    assert await code_of(identity.redeem(token, "ada", "short", actor())) == "bad_request"
    presented, user = await identity.redeem(token, "ada", PASSWORD, actor())
    assert user.last_login_at_us == user.created_at_us, "it is a login, too"
    assert user.role == "admin"
    assert await identity.of_login(presented) is not None
    assert await code_of(identity.redeem(token, "eve", PASSWORD, actor())) == "conflict"
    assert identity.setup.offer() == ""


async def test_a_start_leaves_the_link_of_init(identity: Identity, clock: Hands) -> None:
    first = identity.setup.offer()
    more = [identity.setup.offer(beside=True) for _ in range(LINKS_MAX - 1)]
    assert all(identity.setup.holds(each) for each in (first, *more))
    assert not identity.setup.holds("")
    clock.us += 1
    last = identity.setup.offer(beside=True)
    assert sum(identity.setup.holds(each) for each in (first, *more, last)) == LINKS_MAX
    clock.us += 1
    newest = identity.setup.offer(beside=True)
    assert all(identity.setup.holds(each) for each in (last, newest))
    await identity.redeem(last, "ada", PASSWORD, actor())
    assert await code_of(identity.redeem(newest, "eve", PASSWORD, actor())) == "conflict"


async def test_an_old_setup_link_holds_no_more(identity: Identity, clock: Hands) -> None:
    token = identity.setup.offer()
    clock.us += 3_600_000_000
    assert not identity.setup.holds(token)
    assert await code_of(identity.redeem(token, "ada", PASSWORD, actor())) == "unauthorized"


async def test_the_last_administrator_stays(identity: Identity) -> None:
    await identity.add_user("ada", "admin", PASSWORD, ADMIN)
    await identity.add_user("bob", "viewer", PASSWORD, ADMIN)
    for change in (
        lambda: identity.users.remove("ada", ADMIN),
        lambda: identity.users.set_role("ada", "operator", ADMIN),
    ):
        with pytest.raises(Refused) as raised:
            change()
        assert raised.value.problem.code == "conflict"
    identity.users.set_role("bob", "admin", ADMIN)
    identity.users.remove("ada", ADMIN)
    assert [each.name for each in identity.users.all()] == ["bob"]


async def test_each_change_is_written_down_with_it_and_no_secret_is(
    identity: Identity, tmp_path: Path
) -> None:
    await identity.add_user("ada", "admin", PASSWORD, ADMIN)
    identity.users.end_logins("ada", ADMIN)
    presented, _ = await identity.login("ada", PASSWORD, actor())
    key, secret = identity.keys.add("archive", "viewer", ADMIN)
    with pytest.raises(Refused):
        identity.users.remove("ada", ADMIN)
    file = identity.ledger.file
    found = file.outgoing(100)
    assert [(each.operation, each.target) for _, each in found] == [
        ("users.add", "ada"),
        ("users.logout", "ada"),
        ("users.login", "ada"),
        ("api_keys.add", key.id),
    ]
    assert found[0][1].after == {"role": "admin"}
    assert found[2][1].peer == "10.0.0.1"
    file.sent(found[-2][0])
    assert file.outgoing(100) == found[-1:]
    file.sent(found[-1][0])
    assert file.outgoing(100) == []
    on_disk = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for each in (PASSWORD, secret, secret.rpartition("_")[2], presented):
        assert each.encode() not in on_disk
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
