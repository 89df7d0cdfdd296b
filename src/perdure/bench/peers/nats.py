"""NATS with JetStream."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from perdure.bench.peer import Launch, Peer


def _launch(program: str, directory: Path, port: int) -> Launch:
    text = (
        "server_name: bench\n"
        "listen: 127.0.0.1:-1\n"
        f'jetstream {{ store_dir: "{directory}/jetstream" }}\n'
        f"mqtt {{ listen: 127.0.0.1:{port}, max_ack_pending: 1000 }}\n"
    )
    return Launch([program, "-c", str(directory / "nats.conf")], files={"nats.conf": text})


PEER: Final = Peer(
    "nats",
    program_name="nats-server",
    version=["--version"],
    durability="PUBACK after JetStream stored it in a file; fsync each 2 minutes",
    launch=_launch,
    speaks=(4,),
)
