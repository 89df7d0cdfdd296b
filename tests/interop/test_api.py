"""The API of a real broker: its document, a generated client, nonsense, and the command line beside
it."""

from __future__ import annotations

import asyncio
import importlib
import json
import random
import string
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx
import msgspec
import pytest
from openapi_spec_validator import validate
from openapi_spec_validator.validation.exceptions import OpenAPIValidationError

from tests.support.bounds import HANG_S
from tests.support.process import BrokerProcess, free_port, perdure_command

ROOT: Final = Path(__file__).parents[2]
SNAPSHOT: Final = ROOT / "docs/reference/openapi.json"
SEED: Final = 7
NONSENSE: Final = ("", "0", "-1", "x", "null", "%", "a/b", "é\U0001f600", "9" * 40, "[]", "#", "\0")


class Api:
    """A running broker with sessions, subscriptions and messages in it."""

    def __init__(self, data: Path, port: int, http: int) -> None:
        self.data = data
        self.port = port
        self.url = f"http://127.0.0.1:{http}"
        self.token = ""
        self.client: Any = None

    def opened(self) -> None:
        self.token = (self.data / "http.token").read_text().splitlines()[-1]
        self.client = httpx.Client(
            base_url=f"{self.url}/api/v1",
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=HANG_S,
        )

    def get(self, path: str, **params: Any) -> Any:
        answer = self.client.get(path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def cli(self, *args: str, exit_code: int = 0) -> Any:
        command = [sys.executable, "-m", "perdure", *args, "--data", str(self.data), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
        assert done.returncode == exit_code, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    home = tmp_path_factory.mktemp("api")
    (home / "acl").write_text("topic readwrite #\nuser ada\ntopic read x/#\n")
    found = Api(home / "data", free_port(), free_port())
    options = (
        f"http.bind=127.0.0.1:{found.url.rpartition(':')[2]}",
        f"auth.acl_file={home}/acl",
        f"auth.password_file={home}/users",
        "auth.allow_anonymous=always",
    )
    (home / "users").write_text("")
    (home / "users").chmod(0o600)
    sets = [part for option in options for part in ("--set", option)]
    with asyncio.Runner() as runner:
        command = perdure_command(found.data, found.port, *sets)
        broker = BrokerProcess(command, port=found.port, log=home / "log")
        runner.run(broker.start())
        found.opened()
        for client_id, topic_filter in (("a/é", "t/#"), ("b", "$share/g/t/+"), ("c", "u")):
            who = ["-p", str(found.port), "-i", client_id, "-q", "1", "-c", "-x", "600", "-E"]
            subprocess.run(
                [sys.executable, "-m", "perdure", "sub", *who, "-t", topic_filter],
                check=True,
                timeout=HANG_S,
                capture_output=True,
            )
        messages = [{"topic": f"t/{n}", "payload_text": str(n), "retain": n == 1} for n in range(5)]
        found.client.post("/messages", json={"messages": messages}).raise_for_status()
        yield found
        found.client.close()
        runner.run(broker.stop())


def test_the_document_is_valid_and_is_the_one_that_was_reviewed(api: Api) -> None:
    served = httpx.get(f"{api.url}/api/v1/openapi.json").json()
    validate(served)
    kept = json.loads(SNAPSHOT.read_text())
    for each in (served, kept):
        each["info"]["version"] = ""
    assert served == kept, "make docs writes the snapshot anew"
    served["info"].pop("title")
    with pytest.raises(OpenAPIValidationError, match="title"):
        validate(served)


def test_a_generated_client_works(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--path", str(SNAPSHOT), "--output-path", str(tmp_path / "made"), "--meta", "none"]
    done = subprocess.run(
        [sys.executable, "-m", "openapi_python_client", "generate", *options],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout, done.stdout
    monkeypatch.syspath_prepend(str(tmp_path))
    made = importlib.import_module("made")
    client = made.AuthenticatedClient(base_url=api.url, token=api.token)

    def call(name: str, **asked: Any) -> Any:
        module = importlib.import_module(f"made.api.{name}")
        return module.sync(client=client, **asked)

    page = call("sessions.sessions_list", limit=2)
    assert [row.client_id for row in page.items] == ["a/é", "b"]
    assert [row.client_id for row in call("sessions.sessions_list", cursor=page.next_cursor).items]
    shown = call("sessions.sessions_show", client_id="a/é")
    assert (shown.client_id, shown.subscriptions[0].filter_) == ("a/é", "t/#")
    matches = call("subscriptions.subscriptions_match", topic="t/9")
    assert {row.client_id for row in matches.items} == {"a/é", "b"}
    missing = call("sessions.sessions_show", client_id="nobody")
    assert missing.code == "not_found"
    assert call("stats.stats_overview").sessions_offline == 3
    client.get_httpx_client().close()


def test_the_command_line_prints_what_the_api_serves(api: Api) -> None:
    lists = [
        ("/sessions", {}, ["sessions", "list"]),
        ("/sessions", {"client_id~": "/"}, ["sessions", "list", "--contains", "/"]),
        ("/subscriptions", {}, ["subs", "list"]),
        ("/subscriptions", {"group": "g"}, ["subs", "list", "--group", "g"]),
        ("/subscriptions/match", {"topic": "t/1"}, ["subs", "match", "t/1"]),
        ("/shared-groups", {}, ["shared", "list"]),
        ("/retained", {}, ["retained", "list"]),
        ("/listeners", {}, ["listeners", "list"]),
        ("/unauthorized", {}, ["unauthorized"]),
        ("/bans", {}, ["bans", "list"]),
        ("/storage/databases/log/generations", {}, ["storage", "generations"]),
        ("/storage/databases/log/streams", {}, ["storage", "streams"]),
    ]
    for path, params, command in lists:
        served = api.get(path, **params)["items"]
        assert api.cli(*command) == served, path
    assert api.get("/sessions")["items"], "there is something to compare"
    records = [
        ("/sessions/a%2F%C3%A9", {}, ["sessions", "show", "a/é"]),
        ("/retained/t%2F1", {}, ["retained", "get", "t/1"]),
        ("/sessions/b/explain", {"topic": "t/1"}, ["sessions", "explain", "b", "t/1"]),
    ]
    for path, params, command in records:
        assert api.cli(*command) == api.get(path, **params), path
    shown, served = api.cli("status"), api.get("/stats")
    assert shown.keys() == served.keys()


def test_every_endpoint_survives_nonsense(api: Api) -> None:
    """Whatever is sent, nothing is a defect, and the broker is there afterwards."""
    chance = random.Random(SEED)
    document = json.loads(SNAPSHOT.read_text())
    asked = 0
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if path.endswith(("/live", ":reload", "/setup", "/login", "/logout")):
                continue
            for _ in range(6):
                answer = _nonsense(api, chance, path, method, operation)
                asked += 1
                assert answer.status_code not in (500, 501), (SEED, method, path, answer.text)
                if answer.status_code >= 400:
                    problem = answer.json()
                    assert set(problem) == {"code", "message", "details", "request_id"}
                    assert problem["code"] != "internal", (SEED, method, path)
    assert asked > 200
    assert api.get("/stats")["storage"] == "ok"


def _nonsense(api: Api, chance: random.Random, path: str, method: str, operation: Any) -> Any:
    def word() -> str:
        letters = "".join(chance.choices(string.printable, k=chance.randrange(1, 9)))
        return chance.choice([*NONSENSE, letters])

    params: dict[str, str] = {}
    for parameter in operation.get("parameters", []):
        if parameter["in"] == "path":
            path = path.replace("{" + parameter["name"] + "}", quote(word() or "x", safe=""))
        elif chance.random() < 0.4:
            params[parameter["name"]] = word()
    if path.endswith((":stop", ":start", ":restart")):
        path = path.replace("tcp:", "")
    body: Any = None
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        fields = {name: chance.choice([word(), 1, None, [], {}, [word()], [{}]])
                  for name in schema.get("properties", {}) if chance.random() < 0.8}  # fmt: skip
        body = chance.choice([json.dumps(fields).encode(), b"", b"[", b"\xff", b"{}"])
    return api.client.request(method.upper(), f"{api.url}{path}", params=params, content=body)


def test_live_events_come(api: Api) -> None:
    with api.client.stream("GET", "/live") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line.startswith("data: "):
                assert msgspec.json.decode(line[6:])["node"]
                return
    raise AssertionError("no event")


def test_metrics(api: Api) -> None:
    assert "perdure_sessions" in api.client.get("/metrics").text
