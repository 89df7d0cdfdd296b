"""Right, handler and audit record of an operation."""

from __future__ import annotations

import pytest

from perdure.admin.audit import AuditRecord
from perdure.admin.problems import Refused
from perdure.admin.records.sessions import DiscardSession, GetSession, KickSession
from perdure.admin.rights import Principal
from perdure.admin.table import OPERATIONS
from perdure.errors import StorageUnavailable
from tests.unit.server.administration.scene import ADMIN, Scene

VIEWER = Principal("vic", "viewer", source="api_key")


async def refused(scene: Scene, request: object, principal: Principal) -> str:
    with pytest.raises(Refused) as caught:
        await scene.ask(request, principal)  # type: ignore[arg-type]
    return caught.value.problem.code


async def test_a_change_is_recorded_with_what_it_changed(scene: Scene) -> None:
    await scene.connect("a", expiry_s=60)
    await scene.ask(KickSession(client_id="a"))
    (record,) = scene.audited
    assert (record.principal, record.role, record.peer) == ("eva", "admin", "192.0.2.1")
    assert (record.operation, record.target, record.outcome) == ("sessions.kick", "a", "ok")
    assert (record.request_id, record.request) == ("r1", {"client_id": "a"})
    assert (record.before["state"], record.after["state"]) == ("connected", "offline")
    assert record.at_us > 0


async def test_reading_is_not_recorded_and_a_refused_change_is(scene: Scene) -> None:
    await scene.connect("a", expiry_s=60)
    await scene.ask(GetSession(client_id="a"), VIEWER)
    assert scene.audited == []
    assert await refused(scene, KickSession(client_id="a"), VIEWER) == "forbidden"
    assert await refused(scene, DiscardSession(client_id="b"), ADMIN) == "not_found"
    assert [(one.operation, one.outcome) for one in scene.audited] == [
        ("sessions.kick", "forbidden"),
        ("sessions.discard", "not_found"),
    ]
    assert await scene.rows() == [("a", "connected")]


async def test_who_is_refused_is_told_why_also_when_nothing_can_be_recorded(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was changed and not recorded is no success."""

    async def fails(_record: AuditRecord) -> None:
        raise StorageUnavailable("the disk is gone")

    monkeypatch.setattr(scene, "record", fails)
    await scene.connect("a", expiry_s=60)
    assert await refused(scene, KickSession(client_id="a"), VIEWER) == "forbidden"
    with pytest.raises(StorageUnavailable):
        await scene.ask(KickSession(client_id="a"))


async def test_every_operation_has_a_handler(scene: Scene) -> None:
    elsewhere = {"users", "api_keys", "audit"}
    handled = scene.administration.service._handlers
    assert {name for name in OPERATIONS if OPERATIONS[name].resource not in elsewhere} <= set(
        handled
    )
