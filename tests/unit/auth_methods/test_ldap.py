"""The method on a real OpenLDAP, and what it says when that is away."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import ldap3
import pytest

from perdure.auth_methods.ldap import LdapMethod, open_method
from perdure.bench.ports import free_port
from perdure.broker.auth.authenticate import AuthRequest
from perdure.broker.auth.method import MethodUnavailable, UnusableAnswer
from perdure.config.schema.auth_methods import LdapAuthConfig
from perdure.errors import ConfigError
from tests.support.bounds import HANG_S
from tests.support.clock import VirtualClock
from tests.unit.auth_methods.helpers import asking, make_context
from tests.unit.net.helpers import issue

SLAPD: Final = shutil.which("slapd", path="/usr/sbin:/usr/lib/openldap:/usr/bin")
ROOT_DN: Final = "cn=admin,dc=test"
ENTRIES: Final = """\
dn: dc=test
objectClass: dcObject
objectClass: organization
o: test
dc: test

dn: ou=people,dc=test
objectClass: organizationalUnit
ou: people

dn: uid=ada,ou=people,dc=test
objectClass: inetOrgPerson
uid: ada
cn: Ada
sn: A
employeeType: mqtt
userPassword: wonder

dn: uid=bob\\2Cjr,ou=people,dc=test
objectClass: inetOrgPerson
uid: bob,jr
cn: Bob
sn: twin
userPassword: secret

dn: uid=*,ou=people,dc=test
objectClass: inetOrgPerson
uid: *
cn: Star
sn: twin
userPassword: star
"""


@dataclass(frozen=True)
class Directory:
    """A server, by its URLs; its certificate is for localhost and 127.0.0.1."""

    plain: str
    tls: str
    other_name: str
    ca_file: str
    other_ca_file: str


@pytest.fixture(scope="module")
def directory(served: Directory) -> str:
    return served.plain


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Directory]:
    if SLAPD is None:
        pytest.skip("slapd is not here (make peers)")
    home = tmp_path_factory.mktemp("ldap")
    (home / "db").mkdir()
    issue(home, "server", "localhost", issue(home, "ca", "Test authority"))
    issue(home, "other", "Another authority")
    modules = next(
        (p for p in map(Path, ("/usr/lib/ldap", "/usr/lib/openldap")) if p.is_dir()), None
    )
    schema = next(p for p in map(Path, ("/etc/ldap/schema", "/etc/openldap/schema")) if p.is_dir())
    names = ("core", "cosine", "inetorgperson")
    (home / "slapd.conf").write_text(
        "".join(f"include {schema}/{name}.schema\n" for name in names)
        + (f"modulepath {modules}\nmoduleload back_mdb\n" if modules else "")
        + f"""pidfile {home}/pid
TLSCertificateFile {home}/server.pem
TLSCertificateKeyFile {home}/server.key
database mdb
suffix "dc=test"
rootdn "{ROOT_DN}"
rootpw root
directory {home}/db
maxsize 10485760
access to attrs=userPassword by anonymous auth by * none
access to * by users read by * none
"""
    )
    (home / "entries").write_text(ENTRIES)
    assert SLAPD is not None
    conf = ["-f", str(home / "slapd.conf")]
    added = subprocess.run(
        [SLAPD, "-T", "add", *conf, "-l", str(home / "entries")],
        capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip
    assert added.returncode == 0, added.stderr
    plain, tls = free_port(), free_port()
    found = Directory(
        plain=f"ldap://127.0.0.1:{plain}",
        tls=f"ldaps://127.0.0.1:{tls}",
        other_name=f"ldaps://127.0.0.2:{tls}",
        ca_file=str(home / "ca.pem"),
        other_ca_file=str(home / "other.pem"),
    )
    urls = f"{found.plain} {found.tls} {found.other_name}"
    with (home / "log").open("w") as log:
        process = subprocess.Popen([SLAPD, *conf, "-h", urls, "-d", "0"], stderr=log)
    until = time.monotonic() + HANG_S
    for port in (plain, tls):
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, (home / "log").read_text()
            assert time.monotonic() < until
    yield found
    process.terminate()
    process.wait(HANG_S)


def made(url: str, *, clock: VirtualClock | None = None, **settings: Any) -> LdapMethod:
    found = LdapAuthConfig(url=url, recheck_s=60, **{"plain": True, **settings})
    return open_method(found, make_context("ldap", clock=clock))


SEARCH: Final[dict[str, Any]] = {
    "search_base": "ou=people,dc=test",
    "bind_dn": ROOT_DN,
    "bind_password": "root",
}
DIRECT: Final[dict[str, Any]] = {"user_dn": "uid=%u,ou=people,dc=test"}


@pytest.mark.parametrize("how", [SEARCH, DIRECT], ids=["search", "direct"])
async def test_a_user_is_who_can_bind(directory: str, how: dict[str, Any]) -> None:
    method = made(directory, **how)
    for user, password in (("ada", "wonder"), ("bob,jr", "secret"), ("*", "star")):
        result = await method.authenticate(asking(user, password))
        assert (result.ok, result.username, result.recheck_us > 0) == (True, user, True)
    wrong = [("ada", "secret"), ("ada", ""), ("ada", None), ("nobody", "x"), ("a*", "wonder"),
             (")(uid=ada", "wonder"), ("ada,ou=people", "wonder"), ("ada", b"\xff\0")]  # fmt: skip
    for user, password in wrong:
        result = await method.authenticate(asking(user, password))
        assert (result.ok, result.undecided) == (False, False), (user, password)
    assert (await method.authenticate(asking(None))).undecided
    await method.close()


async def test_a_search_tells_groups_strangers_and_twins(directory: str) -> None:
    method = made(
        directory, **SEARCH, unknown_user="ignore", search_filter="(&(uid=%u)(employeeType=mqtt))"
    )
    assert (await method.authenticate(asking("ada", "wonder"))).ok
    assert (await method.authenticate(asking("bob,jr", "secret"))).undecided
    assert not (await method.authenticate(asking("ada", "secret"))).undecided
    await method.close()
    method = made(directory, **SEARCH, search_filter="(|(uid=%u)(sn=%u))")
    with pytest.raises(UnusableAnswer, match="several"):
        await method.authenticate(asking("twin", "secret"))
    await method.close()


async def test_who_is_taken_out_is_not_renewed(directory: str) -> None:
    root = ldap3.Connection(
        ldap3.Server(directory, get_info=ldap3.NONE), ROOT_DN, "root", auto_bind=True
    )
    name = "uid=eve,ou=people,dc=test"
    entry = {"uid": "eve", "cn": "Eve", "sn": "E", "userPassword": "gone"}
    assert root.add(name, "inetOrgPerson", entry), root.result
    clock = VirtualClock()
    method = made(directory, **SEARCH, clock=clock, cache_s=30)
    result = await method.authenticate(asking("eve", "gone"))
    assert (await method.renew(asking("eve", None), result.proof)).ok
    assert root.delete(name)
    root.unbind()
    assert (await method.authenticate(asking("eve", "gone"))).ok, "it is remembered"
    assert not (await method.renew(asking("eve", None), result.proof)).ok
    clock.advance_us(31_000_000)
    assert not (await method.authenticate(asking("eve", "gone"))).ok
    await method.close()
    direct = made(directory, **DIRECT)
    assert (await direct.renew(asking("ada", None), "uid=ada")).undecided
    await direct.close()


async def test_what_was_remembered_is_remembered_again_when_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = VirtualClock()
    method = made("ldap://127.0.0.1:1", **DIRECT, clock=clock, cache_s=30)
    asked: list[str] = []

    async def bind(_work: object, request: AuthRequest) -> str:
        asked.append(str(request.username))
        return "uid=ada"

    monkeypatch.setattr(method, "_run", bind)
    for passed_s in (0, 29, 2, 29):
        clock.advance_us(passed_s * 1_000_000)
        assert (await method.authenticate(asking("ada", "wonder"))).ok
    assert asked == ["ada", "ada"]
    await method.close()


async def test_nobody_is_let_in_when_the_directory_cannot_tell(directory: str) -> None:
    away = made(f"ldap://127.0.0.1:{free_port()}", **DIRECT)
    with pytest.raises(MethodUnavailable):
        await away.authenticate(asking("ada", "wonder"))
    await away.close()
    stranger = made(directory, **{**SEARCH, "bind_password": "wrong"})
    with pytest.raises(MethodUnavailable, match="not let in"):
        await stranger.authenticate(asking("ada", "wonder"))
    await stranger.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("start_tls", [False, True], ids=["ldaps", "start_tls"])
async def test_what_is_said_to_it_is_encrypted(
    served: Directory, start_tls: bool, host: str
) -> None:
    url = (served.plain if start_tls else served.tls).replace("127.0.0.1", host)
    tls: dict[str, Any] = {"start_tls": start_tls, "plain": False}
    for how in (SEARCH, DIRECT):
        method = made(url, **how, **tls, ca_file=served.ca_file)
        assert (await method.authenticate(asking("ada", "wonder"))).ok
        assert not (await method.authenticate(asking("ada", "secret"))).ok
        method.reload()
        assert (await method.authenticate(asking("ada", "wonder"))).ok
        await method.close()
    stranger = made(url, **DIRECT, **tls, ca_file=served.other_ca_file)
    with pytest.raises(MethodUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
        await stranger.authenticate(asking("ada", "wonder"))
    await stranger.close()


async def test_a_certificate_for_another_name_is_none(served: Directory) -> None:
    method = made(served.other_name, **DIRECT, plain=False, ca_file=served.ca_file)
    with pytest.raises(MethodUnavailable, match=r"127\.0\.0\.2"):
        await method.authenticate(asking("ada", "wonder"))
    await method.close()


@pytest.mark.parametrize("scheme", ["ldaps", "ldap"])
async def test_a_server_that_says_nothing_learns_no_password(
    served: Directory, scheme: str
) -> None:
    said: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said.append(await reader.read())
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    how: dict[str, Any] = {"start_tls": scheme == "ldap", "plain": False, "timeout_ms": 100}
    method = made(url, **DIRECT, **how, ca_file=served.ca_file)
    with pytest.raises(MethodUnavailable):
        await method.authenticate(asking("ada", "wonder"))
    await method.close()
    server.close()
    await server.wait_closed()
    async with asyncio.timeout(HANG_S):
        while not said:
            await asyncio.sleep(0)
    assert said[0]
    assert b"wonder" not in said[0]


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"url": "http://x", **DIRECT}, "auth.ldap.url"),
        ({"url": "ldap://x", **DIRECT}, "auth.ldap.url"),
        ({"url": "ldaps://x"}, "auth.ldap"),
        ({"url": "ldaps://x", **DIRECT, **SEARCH}, "auth.ldap"),
        ({"url": "ldaps://x", "user_dn": "uid=ada"}, "auth.ldap.user_dn"),
        ({"url": "ldaps://x", **SEARCH, "bind_password": ""}, "auth.ldap.bind_password"),
        ({"url": "ldaps://x", **DIRECT, "ca_file": "/nowhere"}, "auth.ldap.ca_file"),
    ],
)
def test_settings_that_let_in_the_wrong_ones_are_refused(
    settings: dict[str, Any], path: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        open_method(LdapAuthConfig(**settings), make_context("ldap"))
    assert caught.value.path == path
