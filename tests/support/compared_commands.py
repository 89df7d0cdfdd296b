"""Which commands read what the API serves, and are compared with it on a real broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

COMMANDS: Final[Mapping[str, tuple[str, dict[str, str], str]]] = {
    "acl get": ("/acl/text", {}, ""),
    "acl list": ("/acl", {}, ""),
    "alarms list": ("/alarms", {}, ""),
    "applications list": ("/applications", {}, ""),
    "applications show": ("/applications/shown", {}, "shown"),
    "api-keys list": ("/api-keys", {}, ""),
    "bans list": ("/bans", {}, ""),
    "cluster status": ("/nodes", {}, ""),
    "filters get": ("/filters/shown", {}, "shown"),
    "filters list": ("/filters", {}, ""),
    "forwarders list": ("/forwarders", {}, ""),
    "forwarders show": ("/forwarders/shown", {}, "shown"),
    "listeners list": ("/listeners", {}, ""),
    "pipeline jobs": ("/pipeline/jobs", {}, ""),
    "retained get": ("/retained/t%2F1", {}, "t/1"),
    "retained list": ("/retained", {}, ""),
    "sessions awaiting-release": ("/sessions/a%2F%C3%A9/awaiting-release", {}, "a/é"),
    "sessions explain": ("/sessions/b/explain", {"topic": "t/1"}, "b t/1"),
    "sessions inflight": ("/sessions/a%2F%C3%A9/inflight", {}, "a/é"),
    "sessions list": ("/sessions", {}, ""),
    "sessions list --contains /": ("/sessions", {"client_id~": "/"}, ""),
    "sessions list --sort=-changed_at": ("/sessions", {"sort": "-changed_at"}, ""),
    "sessions list --state offline": ("/sessions", {"state": "offline"}, ""),
    "sessions pending": ("/sessions/a%2F%C3%A9/pending", {}, "a/é"),
    "sessions show": ("/sessions/a%2F%C3%A9", {}, "a/é"),
    "shared list": ("/shared-groups", {}, ""),
    "status": ("/stats", {}, ""),
    "status --node *": ("/overview", {"node": "*"}, ""),
    "storage databases": ("/storage/databases", {}, ""),
    "storage generations": ("/storage/databases/log/generations", {}, ""),
    "storage streams": ("/storage/databases/log/streams", {}, ""),
    "subs list": ("/subscriptions", {}, ""),
    "subs list --group g": ("/subscriptions", {"group": "g"}, ""),
    "subs match": ("/subscriptions/match", {"topic": "t/1"}, "t/1"),
    "tokens list": ("/tokens", {}, ""),
    "trace list": ("/traces", {}, ""),
    "unauthorized": ("/unauthorized", {}, ""),
    "users list": ("/users", {}, ""),
}
"""Commands that read what the API serves, by what is asked over HTTP; and their arguments."""

EMPTY: Final = {
    "alarms list", "applications list", "pipeline jobs", "sessions awaiting-release",
    "sessions inflight", "unauthorized",
}  # fmt: skip
"""What the broker of this test has nothing of."""

OTHERWISE: Final = {
    "auth test": "asks the methods, without a broker",
    "backup list": "reads a backup",
    "backup verify": "the same",
    "bench report": "reads records of measurements",
    "config check": "reads the file, before a broker does",
    "config diff": "of the file and what `perdure api config.show` has",
    "config reference": "of the release",
    "config schema": "of the release; compared by its own test",
    "config show": "reads the file; `perdure api config.show` is compared",
    "context list": "of this user",
    "cluster verify": "compares directories",
    "doctor": "looks at the machine",
    "examples": "of the release",
    "health": "an exit code",
    "pipeline stats": "a job of its own",
    "pipeline status": "of a pipeline's own place",
    "plan capacity": "reckons",
    "plan sessions": "reckons",
    "queues list": "reads the store of a Redis profile",
    "queues show": "the same",
    "registry device": "of a registry in Redis",
    "registry idle": "the same",
    "registry patterns": "the same",
    "registry stats": "the same",
    "registry wanting": "the same",
    "storage check": "verifies files",
    "storage info": "counts the directory's files and the log; compared below",
    "storage read": "messages; compared below",
    "tokens show": "of a token in hand",
    "trace show": "events, as lines; `perdure api traces.read` is compared",
    "top": "draws; `perdure api sessions.top` is compared",
}
"""Commands that read something, and have nothing to be compared with."""

WRITES: Final = {
    "accept", "add", "archive", "audit", "client", "cluster", "conn", "delete", "discard", "drop",
    "expel", "export", "fanin", "fanout", "forget", "idle", "init", "issue", "join", "kick",
    "learn", "logout", "maintain", "migrate", "offline", "p2p", "passwd", "pause", "persistence",
    "prune", "pub", "put", "registry", "remove", "repair", "repartition", "replay", "restart",
    "restore", "resume", "revoke", "rm", "rotate", "route", "run", "serve", "sessions",
    "set-owner", "set-password", "set-role", "setup-link", "sql", "start", "stop", "sub",
    "subscribe", "sweep", "topic", "unsubscribe", "use", "api", "completion", "backup",
}  # fmt: skip
"""Last words of commands that change, run or send something."""
