"""Logins with opaque tokens, on an embedded store."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from perdure.auth_methods import tokens
from perdure.auth_methods.tokens import TokensMethod
from perdure.broker.auth.grant import grant_of
from perdure.broker.auth.method import MethodUnavailable, UnusableAnswer
from perdure.cli.main import run
from perdure.config.schema.auth_methods import TokensAuthConfig
from perdure.errors import ConfigError
from perdure.tokens import Token, TokenStore, open_tokens
from tests.support.clock import VirtualClock
from tests.unit.auth_methods.helpers import asking, make_context

ID = bytes(range(20))
HELD = ID.hex()
SECOND_US = 1_000_000


class Desk:
    """A store, a method that looks there, and their clock."""

    def __init__(self, path: Path, store: TokenStore, clock: VirtualClock) -> None:
        self.path = path
        self.store = store
        self.clock = clock
        self.methods: list[TokensMethod] = []

    @property
    def now_s(self) -> int:
        return self.clock.now_us() // SECOND_US

    def make(self, **settings: Any) -> TokensMethod:
        config = TokensAuthConfig(store=str(self.path), **settings)
        method = tokens.open_method(config, make_context("tokens", clock=self.clock))
        self.methods.append(method)
        return method

    async def save(self, *, lasts_s: int = 100, identity: str = "ada", **parts: Any) -> None:
        await self.store.save([Token(ID, identity, self.now_s + lasts_s, **parts)], self.now_s)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    clock, path = VirtualClock(), tmp_path / "tokens.db"
    store = await open_tokens(str(path), now_s=clock.now_us() // SECOND_US)
    made = Desk(path, store, clock)
    yield made
    for method in made.methods:
        await method.close()
    await store.close()


async def test_a_token_tells_who_its_client_is_and_until_when(desk: Desk) -> None:
    await desk.save(rights=("read public/#", "write d/%c"))
    result = await desk.make().authenticate(asking(None, HELD))
    assert (result.ok, result.username) == (True, "ada")
    assert result.grant == grant_of(("read public/#", "write d/%c"))
    left_us = result.expires_us - desk.clock.monotonic_us()
    assert 99 * SECOND_US < left_us <= 100 * SECOND_US
    assert result.recheck_us == desk.clock.monotonic_us() + 60 * SECOND_US
    plain = await desk.make(recheck_s=0).authenticate(asking("ada", HELD.upper()))
    assert plain.ok
    assert plain.recheck_us == 0


async def test_a_token_without_rights_says_nothing_of_them(desk: Desk) -> None:
    await desk.save()
    assert (await desk.make().authenticate(asking("ada", HELD))).grant is None


@pytest.mark.parametrize("password", [None, b"", b"secret", HELD[:-1], b"\xff" * 40, "z" * 40])
async def test_what_is_no_token_is_left_to_the_next_method(
    desk: Desk, password: bytes | str | None
) -> None:
    assert (await desk.make().authenticate(asking("ada", password))).undecided


async def test_what_does_not_hold_is_refused(desk: Desk) -> None:
    method = desk.make()
    unknown = await method.authenticate(asking("ada", HELD))
    assert (unknown.ok, unknown.undecided, unknown.reason_code) == (False, False, 0x86)
    await desk.save(client_id="pump-[0-9]")
    assert (await method.authenticate(asking("ada", HELD, client_id="pump-7"))).ok
    elsewhere = await method.authenticate(asking("ada", HELD, client_id="pump-77"))
    assert (elsewhere.ok, elsewhere.reason_code) == (False, 0x87)
    assert not (await method.authenticate(asking("eve", HELD, client_id="pump-7"))).ok
    lenient = desk.make(check_username=False)
    named = await lenient.authenticate(asking("eve", HELD, client_id="pump-7"))
    assert (named.ok, named.username) == (True, "ada")
    desk.clock.advance_us(100 * SECOND_US)
    assert not (await method.authenticate(asking("ada", HELD, client_id="pump-7"))).ok


async def test_a_token_may_be_the_user_name(desk: Desk) -> None:
    await desk.save()
    method = desk.make(token_in="username")
    assert (await method.authenticate(asking(HELD, None))).username == "ada"
    assert (await method.authenticate(asking("ada", HELD))).undecided
    assert (await method.authenticate(asking(None, HELD))).undecided


async def test_who_is_connected_is_looked_at_again(desk: Desk) -> None:
    method = desk.make()
    await desk.save()
    proof = (await method.authenticate(asking(None, HELD))).proof
    await desk.save(rights=("read more",), lasts_s=500)
    renewed = await method.renew(asking("ada", None), proof)
    assert renewed.ok
    assert renewed.grant == grant_of(("read more",))
    assert renewed.expires_us > desk.clock.monotonic_us() + 400 * SECOND_US
    await desk.save(identity="eve")
    assert not (await method.renew(asking("ada", None), proof)).ok
    await desk.save()
    assert (await method.renew(asking("ada", None), proof)).ok
    await desk.store.revoke(ID)
    assert (await method.renew(asking("ada", None), proof)).reason_code == 0x87
    assert not (await method.renew(asking("ada", None), None)).ok


async def test_a_store_that_is_away_or_damaged_refuses(desk: Desk, tmp_path: Path) -> None:
    away = TokensAuthConfig(store=str(tmp_path / "none" / "tokens.db"))
    method = tokens.open_method(away, make_context("tokens"))
    with pytest.raises(MethodUnavailable):
        await method.authenticate(asking("ada", HELD))
    await method.close()
    await desk.save(rights=("fly away",))
    with pytest.raises(UnusableAnswer, match="rights"):
        await desk.make().authenticate(asking("ada", HELD))


async def test_the_store_is_kept_in_order(desk: Desk) -> None:
    await desk.save(lasts_s=1)
    desk.clock.advance_us(2 * SECOND_US)
    assert await desk.store.count() == 1
    method = desk.make(maintain_s=3_600)
    await method.start()
    while await desk.store.count():
        await asyncio.sleep(0)
    idle = desk.make(maintain_s=0)
    await idle.start()


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({}, "auth.tokens.store"),
        ({"store": "http://x"}, "auth.tokens.store"),
        ({"store": "redis://x", "layout": "best"}, "auth.tokens.layout"),
    ],
)
def test_settings_that_cannot_be_used(settings: dict[str, str], path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        tokens.open_method(TokensAuthConfig(**settings), make_context("tokens"))
    assert caught.value.path == path


def test_a_login_is_tried_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "tokens.db"
    assert run(["tokens", "issue", "ada", "--store", str(store)]) == 0
    token = capsys.readouterr().out.strip()
    sets = ["--set", "auth.chain=[tokens]", "--set", f"auth.tokens.store={store}"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(token.encode())))
    assert run(["auth", "test", *sets, "--stdin", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["result"], said["username"], said["method"]) == ("allow", "ada", "tokens")
