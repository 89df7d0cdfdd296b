"""The configured whole: order of methods, and reload that is all or nothing."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from perdure.broker.auth import AccessControl, AuthRequest, AuthResult, Identity, read_files
from perdure.broker.auth.grant import EVERYTHING
from perdure.broker.auth.guard import LoginGuard
from perdure.broker.auth.guarded import GuardedMethod
from perdure.broker.auth.hashes import Pbkdf2Hash, scram_keys
from perdure.broker.auth.method import AuthMethod, allow, deny, ignore
from perdure.broker.auth.scram import NAME
from perdure.config.schema import AuthConfig, MethodConfig
from perdure.errors import ConfigError, MqttError
from tests.unit.auth_methods.helpers import make_context


def line(user: str, password: str) -> str:
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), b"salt", 1)
    return f"{user}:{Pbkdf2Hash(1, b'salt', digest).encode()}\n"


SCRAM_LINE = f"ada:{scram_keys('pw', b'salt', iterations=3).encode()}\n"


def counting(count: int) -> bytes:
    """A source of chance without any."""
    return bytes(count)


class Site:
    """An access control on files of its own."""

    def __init__(self, directory: Path) -> None:
        self.users = directory / "users"
        self.acl = directory / "acl"
        self.control: AccessControl | None = None

    def config(self, *, users: str | None, acl: str | None = None, anonymous: str) -> AuthConfig:
        if users is not None:
            self.users.write_text(users)
        if acl is not None:
            self.acl.write_text(acl)
        assert anonymous in ("always", "loopback", "never")
        return AuthConfig(
            allow_anonymous=anonymous,  # type: ignore[arg-type]
            password_file="" if users is None else str(self.users),
            acl_file="" if acl is None else str(self.acl),
        )

    def start(
        self, *, users: str | None = None, acl: str | None = None, anonymous: str = "never"
    ) -> AccessControl:
        config = self.config(users=users, acl=acl, anonymous=anonymous)
        self.control = AccessControl(
            config,
            read_files(config),
            certificate_listeners=["tls"],
            random_bytes=counting,
            decoy_key=bytes(32),
        )
        return self.control

    def reload(
        self, *, users: str | None = None, acl: str | None = None, anonymous: str = "never"
    ) -> None:
        assert self.control is not None
        config = self.config(users=users, acl=acl, anonymous=anonymous)
        self.control.reload(config, read_files(config))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    if site.control is not None:
        site.control.close()


async def ask(
    control: AccessControl,
    user: str | None = None,
    password: str = "pw",
    *,
    listener: str = "tcp",
    subject: str | None = None,
) -> tuple[int, str | None, str]:
    result = await control.authenticate(
        AuthRequest(
            client_id="c",
            username=user,
            password=None if user is None else password.encode(),
            listener=listener,
            certificate_subject=subject,
        )
    )
    return result.reason_code, result.username, result.method


async def test_order_of_methods(site: Site) -> None:
    control = site.start(users=line("ada", "pw"), anonymous="always")
    assert await ask(control) == (0x00, None, "anonymous")
    assert await ask(control, "ada") == (0x00, "ada", "password")
    assert await ask(control, "ada", "no") == (0x86, None, "password")
    by_certificate = await ask(control, "ada", "no", listener="tls", subject="pump")
    assert by_certificate == (0x00, "pump", "certificate")
    assert await ask(control, "ada", listener="tls") == (0x87, None, "certificate")


async def test_nothing_configured(site: Site) -> None:
    control = site.start(anonymous="never")
    assert await ask(control) == (0x87, None, "none")
    assert await ask(control, "ada") == (0x86, None, "none")
    assert control.authorizer.allow_all


async def test_without_a_password_file_a_stated_name_is_not_believed(site: Site) -> None:
    control = site.start(anonymous="always", acl="user ada\ntopic a\n")
    assert await ask(control, "ada") == (0x00, None, "anonymous")
    assert not control.authorizer.publish(Identity("c", None), "a")


async def test_reload_changes_everything_in_place(site: Site) -> None:
    control = site.start(users=line("ada", "pw"), acl="user ada\ntopic a\n")
    authorizer, methods = control.authorizer, control.methods
    ada = Identity("c", "ada")
    assert await ask(control, "ada") == (0x00, "ada", "password")
    assert authorizer.publish(ada, "a")
    site.reload(users=line("ada", "new"), acl="user ada\ntopic b\n", anonymous="always")
    assert (await ask(control, "ada"))[0] == 0x86
    assert (await ask(control, "ada", "new"))[0] == 0x00
    assert (await ask(control))[0] == 0x00
    assert not authorizer.publish(ada, "a")
    site.reload(anonymous="always")
    assert (await ask(control, "ada", "pw")) == (0x00, None, "anonymous")
    assert authorizer.allow_all
    site.reload(users=line("bob", "pw"))
    assert await ask(control, "bob") == (0x00, "bob", "password")
    assert (control.authorizer, control.methods) == (authorizer, methods)


async def test_reload_with_a_bad_file_changes_nothing(site: Site) -> None:
    control = site.start(users=line("ada", "pw"), acl="user ada\ntopic a\n")
    with pytest.raises(ConfigError):
        site.reload(users=line("bob", "pw"), acl="nonsense\n")
    assert (await ask(control, "ada"))[0] == 0x00
    assert control.authorizer.publish(Identity("c", "ada"), "a")


def test_scram_is_offered_while_someone_can_use_it(site: Site) -> None:
    control = site.start(users=line("ada", "pw"))
    with pytest.raises(MqttError):
        control.methods.begin(NAME)
    site.reload(users=line("ada", "pw") + SCRAM_LINE)
    first = control.methods.begin(NAME).start("c", b"n,,n=eve,r=abc").data
    assert first is not None
    assert first.startswith(b"r=abcAAAAAAAAAAAAAAAAAAAAAAAA,s=")
    assert first.endswith(b",i=3")
    site.reload(users=line("ada", "pw"))
    assert control.methods.names == ()


async def test_superusers_by_every_method(site: Site) -> None:
    """By a name that was proved, and no other; a reload holds for those who come."""
    config = site.config(users=line("ada", "pw") + SCRAM_LINE, acl="", anonymous="always")
    config = msgspec.structs.replace(config, superusers=("ada", "pump"))
    site.control = control = AccessControl(
        config,
        read_files(config),
        certificate_listeners=["tls"],
        random_bytes=counting,
        decoy_key=bytes(32),
    )

    async def is_super(user: str | None, **given: str) -> bool:
        password = None if user is None else b"pw"
        request = AuthRequest(client_id="c", username=user, password=password, **given)  # type: ignore[arg-type]
        return (await control.authenticate(request)).superuser

    assert await is_super("ada")
    assert await is_super(None, listener="tls", certificate_subject="pump")
    assert not await is_super(None, listener="tls", certificate_subject="other")
    assert not await is_super(None)
    assert control.is_superuser("ada")
    assert not control.is_superuser("bob")
    assert not control.is_superuser(None)
    exchange = control.methods.begin(NAME)
    challenge = exchange.start("c", b"n,,n=ada,r=abc").data
    assert challenge is not None
    proved = exchange.step(scram_answer(challenge, "pw", client_first_bare="n=ada,r=abc"))
    assert (proved.username, proved.superuser) == ("ada", True)
    site.reload(users=line("ada", "pw"))
    assert not await is_super("ada")
    assert not control.is_superuser("ada")


def scram_answer(challenge: bytes, password: str, *, client_first_bare: str) -> bytes:
    """The client's final message (RFC 5802 section 3)."""
    fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
    salt, count = base64.b64decode(fields["s"]), int(fields["i"])
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, count)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    without_proof = f"c=biws,r={fields['r']}"
    message = f"{client_first_bare},{challenge.decode()},{without_proof}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), message, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


class Toy(AuthMethod):
    """Knows the users that it is told."""

    def __init__(self, *users: str) -> None:
        self.users = users

    async def authenticate(self, request: AuthRequest) -> AuthResult:
        if request.username not in self.users:
            return ignore()
        return allow(request.username) if request.password == b"toy" else deny()


def chained(
    tmp_path: Path, chain: tuple[str, ...], listeners: dict[str, tuple[str, ...]] | None = None
) -> AccessControl:
    users = tmp_path / "users"
    users.write_text(line("ada", "pw") + SCRAM_LINE)
    config = AuthConfig(
        chain=chain, password_file=str(users), allow_anonymous="always", superusers=("tom",)
    )
    guard = LoginGuard(config)
    toy = GuardedMethod(Toy("ada", "tom"), MethodConfig(), make_context("toy"), guard)
    return AccessControl(
        config,
        read_files(config),
        random_bytes=counting,
        decoy_key=bytes(32),
        guard=guard,
        methods={"toy": toy},
        listener_chains=listeners,
    )


async def test_the_first_that_knows_a_client_decides(tmp_path: Path) -> None:
    control = chained(tmp_path, ("password", "toy", "anonymous"))
    assert await ask(control, "ada", "pw") == (0x00, "ada", "password")
    assert await ask(control, "ada", "toy") == (0x86, None, "password")
    assert await ask(control, "tom", "toy") == (0x00, "tom", "toy")
    assert await ask(control, "tom", "no") == (0x86, None, "toy")
    assert await ask(control, "eve", "no") == (0x00, None, "anonymous")
    control.close()
    turned = chained(tmp_path, ("toy", "password"))
    assert await ask(turned, "ada", "toy") == (0x00, "ada", "toy")
    assert await ask(turned, "ada", "pw") == (0x86, None, "toy")
    assert await ask(turned, "eve", "no") == (0x86, None, "password")
    turned.close()


async def test_a_listener_has_its_own_chain_and_scram_only_with_passwords(tmp_path: Path) -> None:
    control = chained(tmp_path, ("password",), {"ws": ("toy",)})
    assert await ask(control, "ada", "pw") == (0x00, "ada", "password")
    assert await ask(control, "ada", "pw", listener="ws") == (0x86, None, "toy")
    assert await ask(control, "ada", "toy", listener="ws") == (0x00, "ada", "toy")
    assert await ask(control, None, listener="ws") == (0x87, None, "none")
    assert control.offers_enhanced("tcp")
    assert not control.offers_enhanced("ws")
    control.close()


async def test_whom_a_method_has_let_in(tmp_path: Path) -> None:
    control = chained(tmp_path, ("toy",))
    request = AuthRequest(client_id="c", username="tom", password=b"toy")
    result = await control.authenticate(request)
    assert result.superuser
    assert not control.authorizer.allow_all
    identity = Identity("c", "tom", method="toy")
    assert control.keeps(identity, loopback=False)
    assert control.stands("tom", "toy")
    assert not control.stands("tom", "gone")
    assert (await control.renew(request, identity)).undecided
    assert (await control.renew(request, Identity("c", "x", method="password"))).undecided
    assert control.grant_without_login("toy") is EVERYTHING
    assert control.grant_without_login("password") is None
    control.close()
