"""What a reload hands out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.broker.auth import AccessControl, Identity, read_files
from perdure.config.live_settings import LiveSettings
from perdure.config.load import load
from perdure.config.schema import AuthConfig, Config, LimitsConfig
from perdure.errors import ConfigError
from perdure.net.admission import Admission
from perdure.server import app
from perdure.server.bans import BanKeeper
from tests.support.sim_broker import SimBroker


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


async def test_what_a_reload_could_not_hand_out_is_not_shown_as_in_force(tmp_path: Path) -> None:
    file = tmp_path / "perdure.yaml"
    file.write_text(f"storage: {{path: {tmp_path}}}\n")
    live = LiveSettings(lambda more: load(file, environ={}, overrides=more))
    file.write_text(f"storage: {{path: {tmp_path}}}\nauth: {{acl_file: {tmp_path}/nowhere}}\n")

    def read() -> Config:
        live.reload()
        return live.loaded.config

    auth = AuthConfig()
    access = AccessControl(auth, read_files(auth), random_bytes=bytes, decoy_key=bytes(32))
    sim = SimBroker(authorizer=access.authorizer, standing=access)
    sim.start()
    keeper = BanKeeper(sim.live.services.ban_enforcer, None, sim.clock)
    with pytest.raises(ConfigError, match="nowhere"):
        app._reload_settings(
            read,
            live=live,
            access=access,
            admission=Admission(LimitsConfig()),
            broker=sim.live,
            bans=keeper,
        )
    assert live.loaded.config.auth.acl_file == ""
