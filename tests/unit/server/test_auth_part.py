"""The methods of a process; and that what the guide shows is taken."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from perdure.broker.auth.grant import parse_grant
from perdure.config.load import examine
from perdure.config.schema import AUTH_METHODS, Config
from perdure.observe.metrics import Metrics
from perdure.server.auth_part import AuthPart, names_in_use
from perdure.server.preflight import look
from tests import servers
from tests.unit.net.helpers import issue

GUIDE = Path(__file__).parents[3] / "docs" / "howto" / "authentication-methods.md"


def blocks(language: str) -> list[str]:
    """Snippets of the guide."""
    found = re.findall(rf"^```{language}\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    assert found
    return found


@pytest.mark.parametrize("text", blocks("yaml"))
def test_settings_of_the_guide_are_taken(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The files that it names.
    monkeypatch.chdir(tmp_path)
    issue(tmp_path, "server", "localhost", issue(tmp_path, "clients-ca", "clients"))
    secret = tmp_path / "ldap"
    secret.write_text("correct horse")
    file = tmp_path / "perdure.yaml"
    file.write_text(text.replace("/run/secrets/ldap", str(secret)))
    sets = ("listeners.tcp.bind=127.0.0.1:0", f"storage.path={tmp_path}/data")
    loaded, problems = examine(file, environ={}, sets=sets)
    assert problems == []
    assert loaded is not None
    assert names_in_use(loaded.config)
    assert look(loaded.config, ports=False).problems == []


@pytest.mark.parametrize("text", blocks("json"))
def test_what_the_guide_says_of_rules_is_taken(text: str) -> None:
    said = json.loads(text)
    if isinstance(said, dict) and "acl" in said:
        assert parse_grant(said["acl"]).rules
    elif isinstance(said, list) or "sub" in said:
        assert len(parse_grant(said).rules) == 3


@pytest.mark.postgres
async def test_the_guides_tables_and_queries() -> None:
    import asyncio

    url = await asyncio.to_thread(servers.postgres_place)
    connection = await asyncpg.connect(url)
    for text in blocks("sql"):
        await connection.execute(text)
    for text in blocks("yaml"):
        for query in re.findall(r"_query: (.*)", text):
            await connection.fetch(query, "ada")
    await connection.close()


def test_every_line_of_the_registry_can_be_named() -> None:
    """In a process of its own: nothing of a method is imported before it is asked for."""
    code = (
        "import sys, perdure.server.app, perdure.config.schema as s;"
        "names = [l.opens.partition(':')[0] for l in s.AUTH_METHODS.values() if l.opens];"
        "assert names and not set(names) & set(sys.modules), names;"
        "assert not {'jwt', 'httpx', 'asyncpg'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    for name, line in AUTH_METHODS.items():
        if not line.is_built_in:
            assert type(Config().auth.method(name)) is line.settings


async def test_a_reload_looks_again_at_who_is_connected(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"s" * 48)
    file = tmp_path / "perdure.yaml"
    file.write_text(
        f"auth:\n  chain: [jwt]\n  jwt: {{ secret_file: {tmp_path}/secret, algorithms: [HS256] }}\n"
    )
    loaded, problems = examine(file, environ={})
    assert not problems
    assert loaded is not None
    part = AuthPart(loaded.config, Metrics())
    asked: list[tuple[str | None, str]] = []

    class Expiry:
        def look_again(self, username: str | None = None, *, method: str = "") -> int:
            asked.append((username, method))
            return 1

    part.reload()
    part.login_expiry = Expiry()  # type: ignore[assignment]
    await part.start()
    part.reload()
    part._changed("jwt", "ada")
    assert asked == [(None, ""), ("ada", "jwt")]
    await part.stop()


def test_what_serve_would_refuse_is_found_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def problems(*sets: str) -> list[tuple[str, str]]:
        here = ("listeners.tcp.bind=127.0.0.1:0", f"storage.path={tmp_path}/data")
        loaded, found = examine(None, environ={}, sets=(*here, *sets))
        assert found == []
        assert loaded is not None
        return [(each.path, each.hint) for each in look(loaded.config, ports=False).problems]

    assert problems("auth.chain=[jwt, anonymous]") == [("auth.jwt", "there is none of them")]
    secret = ("auth.jwt.secret_file=/nowhere", "auth.jwt.algorithms=[HS256]")
    assert problems("auth.chain=[jwt]", *secret)[0][0] == "auth.jwt.secret_file"
    chained = "listeners.tcp.auth_chain=[http]"
    assert problems(chained)[0][0] == "auth.http.url"

    def missing(name: str) -> None:
        raise ModuleNotFoundError(name="httpx")

    monkeypatch.setattr("perdure.config.plugged.importlib.import_module", missing)
    assert problems(chained) == [("auth.chain", "pip install 'perdure[http-auth]'")]
