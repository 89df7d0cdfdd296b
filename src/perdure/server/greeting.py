"""What a person at a terminal is told once a broker runs: where, on what data, for whom."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perdure import __version__
from perdure.config.schema import Config
from perdure.observe.logs import get_logger
from perdure.pure import build

log = get_logger("server")

_DURABLE = {
    "fsync": "acknowledged = on disk (fsync)",
    "os": "acknowledged = with the system (os)",
    "memory": "acknowledged = in memory (memory)",
}
_ANONYMOUS = {
    "loopback": "without credentials from this machine only",
    "always": "without credentials from anywhere",
    "never": "with credentials only",
}


def greeting(config: Config, version: str, listeners: Sequence[tuple[str, str]]) -> str:
    """A few lines, each within 80 columns unless a path is long.

    Args:
        config: of the broker.
        version: release.
        listeners: kind and address of each.
    """
    where = ", ".join(f"{address} ({kind})" for kind, address in listeners)
    storage = config.storage
    if not storage.traits.is_kept:
        data = "in memory only"
    else:
        data = str(Path(storage.path).resolve())
    users = "with an ACL" if config.auth.acl_file else "may read and write every topic"
    lines = [
        f"Perdure {version} is ready; Ctrl-C stops it",
        f"  listens  {where or 'nowhere'}",
        f"  data     {data}, {_DURABLE[storage.durability]}",
        f"  clients  {_ANONYMOUS[config.auth.allow_anonymous]}, {users}",
    ]
    return "\n".join(lines) + "\n"


def say_build() -> None:
    """Log which build this is, and that one can have a faster one."""
    kind = build()
    log.info("server.build", version=__version__, build=kind)
    if kind == "pure":
        log.warning(
            "server.not_compiled",
            hint="about half as fast as a compiled build: install with a C compiler at hand",
        )
