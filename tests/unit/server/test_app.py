"""What the process is built from: the parts that no running broker shows by itself."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.sim_broker import SimBroker

from perdure.broker.auth import AccessControl, Identity, read_files
from perdure.config import Config, Listener, ListenersConfig
from perdure.config.schema import AuthConfig, LimitsConfig
from perdure.errors import ConfigError
from perdure.net.admission import Admission
from perdure.server import app
from perdure.server.app import TaskWatch, certificate_listeners
from perdure.server.bans import BanKeeper


async def test_the_first_failure_of_a_task_is_the_one_that_is_raised() -> None:
    watch = TaskWatch()
    waiting = asyncio.ensure_future(watch.run())
    watch.task_failed(ValueError("first"))
    watch.task_failed(ValueError("second"))
    with pytest.raises(ValueError, match="first"):
        await waiting
    watch.close()


async def test_a_watch_that_is_closed_waits_no_longer() -> None:
    watch = TaskWatch()
    waiting = asyncio.ensure_future(watch.run())
    watch.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    watch.task_failed(ValueError("too late"))


def test_certificates_name_users_only_where_that_is_set() -> None:
    named = Listener(
        bind="127.0.0.1:8883",
        certificate="server.pem",
        private_key="server.key",
        username_from_certificate=True,
    )
    plain = Listener(bind="127.0.0.1:8884")
    closed = Listener(bind="127.0.0.1:8885", username_from_certificate=True, enabled=False)
    config = Config(listeners=ListenersConfig(tls=(named, plain), wss=(closed,)))
    assert len(certificate_listeners(config)) == 1
    assert "8883" in certificate_listeners(config)[0]
    assert certificate_listeners(Config()) == []


async def test_who_is_no_superuser_any_more_is_none_at_once(tmp_path: Path) -> None:
    """And a ban in the file holds from the reload on, for who is connected too."""
    acl = tmp_path / "acl"
    acl.write_text("user ada\ntopic read mine\n")
    auth = AuthConfig(acl_file=str(acl), ban_file=str(tmp_path / "bans"))
    before = Config(auth=msgspec.structs.replace(auth, superusers=("ada",)))
    access = AccessControl(
        before.auth,
        read_files(before.auth),
        certificate_listeners=["tls"],
        random_bytes=bytes,
        decoy_key=bytes(32),
    )
    sim = SimBroker(authorizer=access.authorizer, standing=access)
    sim.start()
    registry = sim.live.services.registry
    keeper = BanKeeper(sim.live.services.ban_enforcer, None, sim.clock)
    banned: list[Any] = []

    class Peer:
        address = "10.0.0.7"
        loopback = True

    class Holder:
        peer = Peer()

        def disconnect(self, *told: object, **how: object) -> None:
            banned.append((told, how))

    class Session:
        client_id = "c"
        identity = Identity("c", "ada", superuser=True, method="certificate")
        connection = Holder()

        def withdraw_pending(self) -> None:
            pass

    registry.live["c"] = Session()  # type: ignore[assignment]
    assert access.authorizer.publish(Session.identity, "any/topic")
    admission = Admission(LimitsConfig())

    def reload(config: Config) -> None:
        app._reload_settings(
            lambda: config, access=access, admission=admission, broker=sim.live, bans=keeper
        )

    reload(Config(auth=auth))
    assert not Session.identity.superuser
    assert not access.authorizer.publish(Session.identity, "any/topic")
    reload(before)
    assert Session.identity.superuser
    assert banned == []
    (tmp_path / "bans").write_text('{"address":"10.0.0.0/8"}\n')
    reload(before)
    assert banned == [((0x98, "banned"), {"send_will": False})]
    (tmp_path / "bans").write_text("nonsense\n")
    with pytest.raises(ConfigError):
        reload(Config(auth=auth))
    assert Session.identity.superuser, "a reload happens whole or not at all"
    registry.live.clear()


def test_limits_of_a_listener_stand_in_for_those_of_the_broker() -> None:
    listeners = ListenersConfig(
        tcp=(
            Listener(bind="127.0.0.1:1", publish_rate=0, subscribe_rate=7),
            Listener(bind="127.0.0.1:2"),
        )
    )
    limits = LimitsConfig(publish_rate=5, publish_bytes_rate=6, sessions_max=9)
    found = app.listener_limits(Config(listeners=listeners, limits=limits))
    assert found == {
        "tcp:127.0.0.1:1": msgspec.structs.replace(limits, publish_rate=0, subscribe_rate=7)
    }
