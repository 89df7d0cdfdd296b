"""A client identifier belongs to whom it was authenticated as."""

from __future__ import annotations

import pytest

from perdure.mqtt.packets import Connack, Connect, Properties
from tests.unit.broker.harness import Client
from tests.unit.broker.naming import Users, connect_as, make_named_sim


@pytest.mark.parametrize("stranger", ["bob", None])
@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("connected", [False, True])
@pytest.mark.parametrize("version", [4, 5])
def test_another_user_gets_nothing_of_a_session(
    version: int, connected: bool, clean: bool, stranger: str | None
) -> None:
    """Neither a resume nor a takeover nor a clean start: refused, and all is as it was."""
    sim = make_named_sim()
    owner, other = Client(sim, "c", version=version), Client(sim, "c", version=version)
    publisher = Client(sim, "p")
    connect_as(publisher, None)
    connect_as(owner, "ada")
    owner.subscribe("t")
    if not connected:
        owner.cut()
    assert connect_as(other, stranger, clean=clean).reason == (0x87 if version == 5 else 5)
    assert owner.is_lost is not connected
    publisher.deliver("t", b"for ada")
    if not connected:
        assert connect_as(owner, "ada").session_present
    assert owner.payloads() == [b"for ada"]
    refusals = sim.live.services.metrics.limit_refusals
    assert refusals == {("auth.client_id_binding",): 1}
    record = sim.live.services.registry.live["c"].record
    assert (record.username, record.method) == ("ada", "password")


def test_a_user_gets_nothing_of_an_anonymous_session_but_of_its_own_after_a_restart() -> None:
    sim = make_named_sim()
    one, ada, bob = (Client(sim, name) for name in ("c", "d", "d"))
    connect_as(one, None)
    connect_as(ada, "ada")
    sim.kill()
    sim.start()
    thief = Client(sim, "c")
    assert connect_as(thief, "ada").reason == 0x87
    assert connect_as(one, None).session_present
    assert connect_as(bob, "bob", clean=True).reason == 0x87
    assert connect_as(ada, "ada").session_present


def test_of_two_that_come_at_once_for_a_new_session_one_gets_it() -> None:
    sim = make_named_sim()
    sim.suspends = True
    clients = [Client(sim, "c"), Client(sim, "c")]
    for client, user in zip(clients, ("ada", "bob"), strict=True):
        client.open()
        client.send(
            Connect(
                5, False, 0, "c", username=user, properties=Properties(session_expiry_interval=9)
            )
        )
    reasons = [client.take(Connack).reason for client in clients]
    assert sorted(reasons) == [0, 0x87]


def test_an_expired_session_is_nobody_s() -> None:
    sim = make_named_sim()
    client = Client(sim, "c")
    connect_as(client, "ada", expiry_s=10)
    client.cut()
    sim.live.services.reaper.stop()
    sim.run_for(11_000_000)
    found = connect_as(Client(sim, "c"), "bob")
    assert (found.reason, found.session_present) == (0, False)


def test_a_session_that_has_ended_binds_nobody() -> None:
    sim = make_named_sim()
    client = Client(sim, "c")
    connect_as(client, "ada", expiry_s=0)
    client.disconnect()
    assert connect_as(Client(sim, "c"), "bob").reason == 0


def test_a_superuser_may_look_in_and_does_not_become_the_owner() -> None:
    users = Users()
    users.superusers.add("op")
    sim = make_named_sim(users)
    owner, operator = Client(sim, "c"), Client(sim, "c")
    connect_as(owner, "ada")
    assert connect_as(operator, "op").session_present
    operator.cut()
    assert connect_as(owner, "ada").session_present


def test_without_binding_a_session_passes_to_who_comes() -> None:
    """The way of changing user names: off, until all have come back, then on again."""
    sim = make_named_sim(binding="none")
    first, second = Client(sim, "c"), Client(sim, "c")
    connect_as(first, "ada")
    assert connect_as(second, "ada2").session_present
    services = sim.live.services
    assert (services.session_counts.of_user("ada"), services.session_counts.of_user("ada2")) == (
        0,
        1,
    )
    record = services.registry.live["c"].record
    assert record.username == "ada2"
