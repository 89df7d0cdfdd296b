"""rumqttd: everything in memory; its two protocol versions have listeners of their own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from perdure.bench.peer import Launch, Peer


def _launch(program: str, directory: Path, port: int) -> Launch:
    text = (
        "id = 0\n\n[router]\nid = 0\nmax_connections = 20000\n"
        "max_outgoing_packet_count = 200\nmax_segment_size = 104857600\n"
        "max_segment_count = 10\n\n"
        f'[v4.1]\nname = "v4-1"\nlisten = "127.0.0.1:{port}"\nnext_connection_delay_ms = 0\n'
        "[v4.1.connections]\nconnection_timeout_ms = 60000\nmax_payload_size = 268435455\n"
        "max_inflight_count = 1000\ndynamic_filters = true\n"
    )
    return Launch(
        [program, "--quiet", "--config", str(directory / "rumqttd.toml")],
        files={"rumqttd.toml": text},
    )


def _installed() -> str | None:
    """Where ``cargo install`` puts it."""
    cargo_home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    return shutil.which("rumqttd", path=str(cargo_home / "bin"))


PEER: Final = Peer(
    "rumqttd",
    program_name="rumqttd",
    installed=_installed,
    version=["--version"],
    durability="PUBACK from memory; keeps nothing on disk",
    launch=_launch,
    # Version 5.0 has a listener of its own, on another port.
    speaks=(4,),
)
