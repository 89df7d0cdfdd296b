"""Which log a node's directory has been read from, in a file beside its store.

A position means something in one log alone. Under another ``cluster.name`` a node would begin in
the middle of a log that it has never seen, pass over all that lies before, and differ from the
others for good without a word.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from perdure.errors import ConfigError
from perdure.files import AS_UMASK_SAYS, replace_file

TOPIC_FILE: Final = "cluster.topic"
"""In the data directory: Kafka's name of the log."""


def keep_to_log(directory: Path, topic: str, *, has_read: bool) -> None:
    """Note which log is read here, unless another one was.

    A directory that has read and has no note, of an earlier release or a copy of another node's, is
    taken at its word.

    Args:
        directory: of the data.
        topic: the log's name.
        has_read: something of a log has been applied here.

    Raises:
        ConfigError: it was another log, or the note cannot be read or written.
    """
    path = directory / TOPIC_FILE
    try:
        noted = _noted(path)
        if noted == topic:
            return
        if noted and has_read:
            raise ConfigError(
                f"this node has read topic {noted} so far, and is to read {topic} now",
                path="cluster.name",
                hint="set cluster.name back; or start it on an empty storage.path, where it may "
                "fetch that cluster's state (perdure cluster join); if the log is lost, begin "
                "another: perdure cluster init --anew",
            )
        replace_file(path, f"{topic}\n".encode(), mode=AS_UMASK_SAYS)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", path="storage.path") from error


def _noted(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        return ""
