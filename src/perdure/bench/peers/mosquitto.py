"""Eclipse Mosquitto."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from perdure.bench.peer import Launch, Peer


def _launch(program: str, directory: Path, port: int) -> Launch:
    text = (
        f"listener {port} 127.0.0.1\n"
        "allow_anonymous true\n"
        "max_inflight_messages 1000\n"
        "max_queued_messages 0\n"
        "persistence true\n"
        f"persistence_location {directory}/\n"
    )
    # Started by root, it would become a user that cannot write into the directory.
    text += "user root\n"
    return Launch(
        [program, "-c", str(directory / "mosquitto.conf")], files={"mosquitto.conf": text}
    )


PEER: Final = Peer(
    "mosquitto",
    program_name="mosquitto",
    version=["-h"],
    durability="PUBACK from memory; snapshot each 1800 s",
    launch=_launch,
    speaks=(4, 5),
)
