"""A simulated broker that believes a user name as stated, and whose users can be taken away."""

from __future__ import annotations

from perdure.broker.auth.acl import AclAuthorizer
from perdure.broker.auth.acl_rules import AclRules
from perdure.broker.auth.authenticate import AllStand, AuthRequest, AuthResult, accepted
from perdure.broker.auth.authorize import Identity
from perdure.config.schema import AuthConfig, Config, SysConfig
from perdure.model import Will
from perdure.mqtt.packets import Connack, Connect, Properties
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import NO_DELAY, Client


class Users(AllStand):
    """Authenticator and standing: who states a name has it."""

    def __init__(self) -> None:
        self.superusers: set[str] = set()
        self.removed: set[str] = set()

    async def authenticate(self, request: AuthRequest) -> AuthResult:
        name = request.username
        if name is None:
            return accepted("anonymous", None)
        return accepted("password", name, superuser=name in self.superusers)

    def keeps(self, identity: Identity, *, loopback: bool) -> bool:
        return self.stands(identity.username, identity.method)

    def stands(self, username: str | None, method: str) -> bool:
        return username not in self.removed

    def is_superuser(self, username: str | None) -> bool:
        return username in self.superusers


def make_named_sim(
    users: Users | None = None, *, acl: str | None = None, binding: str = "user"
) -> SimBroker:
    """A running broker with named users, with or without an ACL."""
    users = users or Users()
    rules = None if acl is None else AclRules.parse(acl, name="acl")
    auth = AuthConfig(client_id_binding=binding)  # type: ignore[arg-type]
    sim = SimBroker(
        config=Config(sys=SysConfig(interval_s=0), auth=auth),
        network_profile=NO_DELAY,
        authenticator=users,
        authorizer=AclAuthorizer(rules),
        standing=users,
    )
    sim.blocking_us = (1_000, 1_000)
    sim.start()
    return sim


def use_acl(sim: SimBroker, acl: str) -> None:
    """Have other rules from now on."""
    assert isinstance(sim.authorizer, AclAuthorizer)
    sim.authorizer.reload(AclRules.parse(acl, name="acl"))


def connect_as(
    client: Client,
    user: str | None,
    *,
    clean: bool = False,
    expiry_s: int = 1000,
    will: Will | None = None,
    size_max: int | None = None,
    receive_maximum: int | None = None,
) -> Connack:
    """Connect with a user name; returns CONNACK."""
    client.open()
    properties = Properties()
    if client.version == 5:
        properties = Properties(
            session_expiry_interval=expiry_s,
            maximum_packet_size=size_max,
            receive_maximum=receive_maximum,
        )
    client.send(
        Connect(
            client.version,
            clean,
            0,
            client.client_id,
            username=user,
            will=will,
            properties=properties,
        )
    )
    return client.take(Connack)
