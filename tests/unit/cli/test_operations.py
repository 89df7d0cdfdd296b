"""What the API serves, the command line prints: each operation has a command of its own, or there
is a reason why ``perdure api`` is enough."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Final

import perdure.cli
from perdure.admin.table import OPERATIONS

ROOT: Final = Path(perdure.cli.__file__).parent
DOCUMENT: Final = Path(__file__).parents[3] / "docs/reference/openapi.json"

GENERIC: Final = {
    "stats.rates": "in `status` of the API's overview; `top` shows them too",
    "stats.history": "a chart; `perdure api stats.history`",
    "storage.shards": "`storage info` has the numbers",
    "storage.timeline": "a picture; `storage generations` has the numbers",
    "subscriptions.of_session": "`subs list --client`, `sessions show`",
    "listeners.show": "`listeners list`",
    "sessions.kick_all": "`sessions kick` takes one; several by `perdure api`",
    "sessions.discard_all": "`sessions discard` takes several",
    "config.schema": "`config schema` prints the same, without a broker",
    "config.patch": "`perdure api config.patch`",
    "config.reload": "SIGHUP, or `perdure api config.reload`",
    "log_level.show": "`perdure api`",
    "log_level.set": "`perdure api`",
    "credentials.get": "`passwd FILE`",
    "credentials.list": "`passwd FILE`",
    "credentials.put": "`passwd FILE USER`",
    "credentials.add_token": "`passwd FILE USER --token`",
    "credentials.delete": "`passwd FILE USER --delete`",
    "credentials.import": "`perdure api credentials.import --input`",
    "users.get": "`users list`",
    "users.list": "`users` writes the same file, with or without a broker",
    "users.add": "the same",
    "users.set_role": "the same",
    "users.set_password": "the same",
    "users.logout": "the same",
    "users.remove": "the same",
    "api_keys.list": "`api-keys` writes the same file, with or without a broker",
    "api_keys.add": "the same",
    "api_keys.revoke": "the same",
    "tokens.list": "`tokens list` reads the same store, with or without a broker",
    "tokens.issue": "`tokens issue`, the same",
    "tokens.revoke": "`tokens revoke --id`; `perdure api` disconnects at once",
    "audit.list": "`perdure api audit.list`",
    "messages.publish": "`pub`, as a client; durably by `perdure api messages.publish`",
    "messages.read": "`storage read` reads the log itself",
}
"""Operations that no module of the command line names, and what there is instead."""

NO_OPERATION: Final = {
    "/error-codes": "perdure explains errors itself",
    "/live": "`top`, `trace`, `sub '$SYS/#'`",
    "/livez": "`health`",
    "/login": "for browsers",
    "/logout": "for browsers",
    "/me": "for browsers",
    "/metrics": "`perdure api` has stats.metrics on the socket",
    "/readyz": "`health`",
    "/setup": "for browsers; `users setup-link`",
    "/status": "`status`",
    "/storage/databases/log": "`storage info`",
    "/storage/databases/log/cursors": "`pipeline status`",
    "/storage/databases/log/schema": "`perdure sql 'DESCRIBE log'`",
    "/storage/databases/log/streams": "`storage streams`",
    "/version": "`--version`",
}


def named() -> set[str]:
    """Classes that modules of the command line import from the records of the API."""
    found = set()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "perdure.admin.records"
            ):
                found |= {each.name for each in node.names}
    return found


def test_each_operation_has_a_command_or_a_reason() -> None:
    classes = named()
    without = {each.name for each in OPERATIONS.values() if each.request.__name__ not in classes}
    without.discard("stats.metrics")  # on the socket alone, for the HTTP process
    assert without - set(GENERIC) == set(), "add a command, or say why none is needed"
    assert set(GENERIC) - without == set(), "there is a command now"


def test_each_path_is_an_operation_or_has_a_reason() -> None:
    routed = {each.http.path for each in OPERATIONS.values() if each.http is not None}
    paths = {path.removeprefix("/api/v1") for path in json.loads(DOCUMENT.read_text())["paths"]}
    assert paths - routed == set(NO_OPERATION)
