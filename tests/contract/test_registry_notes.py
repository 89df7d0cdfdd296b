"""What a broker notes of its clients, on real Redis servers: one, and a cluster."""

from __future__ import annotations

import secrets

import pytest

from perdure.registry import Registry
from perdure.registry.notes import NONE, Noted, Notes
from perdure.storage.redis import Command
from tests import servers

pytestmark = pytest.mark.redis


def noted(count: int) -> Noted:
    return frozenset(
        (f"app:plant:user:u{number}:model:task", "0123456789abcdef" if number % 2 else "")
        for number in range(count)
    )


@pytest.mark.parametrize("kind", ["single", "cluster"])
async def test_notes_grow_shrink_and_go(kind: str) -> None:
    server = servers.redis_cluster() if kind == "cluster" else servers.redis()
    prefix = f"t{secrets.token_hex(4)}:"
    registry = await Registry.open(server.url, prefix=prefix)
    notes = Notes(registry.client, prefix, "node-1")
    others = Notes(registry.client, prefix, "node-2")
    held: dict[str, Noted] = {}
    sizes = [0, 1, 3, 40, 1000, 2, 1, 0]
    for turn, size in enumerate(sizes):
        for name in ("pump", "pümp {7}", "p" * 300, f"other-{turn}"):
            await registry.write(notes.put(name, noted(size), held.get(name)))
            held[name] = noted(size)
        assert await notes.read([*held, "nobody"]) == held
        assert sorted(await notes.names()) == sorted(held)
    for name, last in held.items():
        await registry.write([notes.remove(name, last)])
    assert await notes.read(list(held)) == {}
    assert await others.names() == await notes.names() == []
    assert [key async for page in registry.client.scan(f"{prefix}*".encode()) for key in page] == []
    await registry.close()


async def test_they_are_packed() -> None:
    prefix = f"t{secrets.token_hex(4)}:"
    registry = await Registry.open(servers.redis().url, prefix=prefix)
    notes = Notes(registry.client, prefix, "n")
    for number in range(200):
        await registry.write(notes.put(f"client-{number}", noted(3), NONE))
    keys = [key async for page in registry.client.scan(f"{prefix}*".encode()) for key in page]
    kinds = {await registry.client.call(Command(("OBJECT", "ENCODING", key), key)) for key in keys}
    assert kinds == {b"listpack"}
    await registry.close()
