"""Perdure itself: the code that runs here, unless another program is named."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import perdure
from perdure.bench.peer import Launch, Peer


def _launch(program: str, directory: Path, port: int) -> Launch:
    serve = ["serve", "--data", str(directory / "data"), "--bind", f"127.0.0.1:{port}"]
    # The child runs the code that runs here, wherever it was imported from.
    environment = {"PYTHONPATH": str(Path(perdure.__file__).parents[1])}
    return Launch(
        [*_command(program), *serve], environment=environment if program == sys.executable else {}
    )


def _command(program: str) -> list[str]:
    """A program as a command: our own interpreter stands for the package that runs in it."""
    return [program, "-m", "perdure"] if program == sys.executable else [program]


PEER: Final = Peer(
    "perdure",
    program_name=sys.executable,
    version=["--version"],
    durability="PUBACK after fsync",
    command=_command,
    launch=_launch,
    speaks=(4, 5),
)
