"""Fetches a checkpoint from a peer's HTTP interface."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from perdure.backup.manifest import BackupManifest
from perdure.backup.place import Copied
from perdure.backup.stream import take_stream
from perdure.config.schema import RocksdbConfig
from perdure.errors import ConfigError, StorageUnavailable

PATH: Final = "/api/v1/cluster/checkpoint"
TIMEOUT_S: Final = 120.0
"""Without a byte for so long, a peer is taken to hang; a checkpoint takes it a few seconds."""

_PORTS: Final = {"http": 18_083, "https": 18_083}
_REFUSALS: Final = frozenset({401, 403, 404})
_PROBLEM_BYTES_MAX: Final = 65_536


class _Problem(msgspec.Struct):
    message: str = ""
    hint: str = ""


def fetch_checkpoint(
    url: str,
    token: str,
    data: Path,
    *,
    config: RocksdbConfig,
    ca_file: str = "",
    copied: Copied = lambda _: None,
    checking: Callable[[], None] = lambda: None,
    rows: bool = False,
) -> BackupManifest:
    """Make a data directory from a checkpoint of a peer.

    Args:
        url: of the peer: ``https://host:port``.
        token: one that may administer it.
        data: an empty directory, or none.
        config: of the database.
        ca_file: certificates that the peer's must be signed by; empty = those of the machine.
        copied: told of each piece, bytes.
        checking: told that all of it has come.
        rows: verify each row too.

    Raises:
        ConfigError: the URL or the token is wrong, or the directory is not empty.
        StorageUnavailable: the peer cannot be reached, or the stream ended early.
        StorageCorrupt: what came does not hold.
    """
    connection = _connect(url, ca_file)
    try:
        try:
            connection.request("GET", PATH, headers={"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
        except ssl.SSLCertVerificationError as error:
            raise ConfigError(
                f"{url}: {error.verify_message}", hint="name its authority with --ca-file"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise StorageUnavailable(
                f"{url} cannot be reached: {error}",
                hint="is the peer running, with http.bind set to this address?",
            ) from error
        if answer.status != 200:
            raise _refused(url, answer)
        try:
            return take_stream(
                answer, data, config=config, copied=copied, checking=checking, rows=rows
            )
        except http.client.HTTPException as error:
            raise StorageUnavailable(f"{url}: the checkpoint ended early: {error!r}") from error
    finally:
        connection.close()


def _connect(url: str, ca_file: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ConfigError(f"{url} names no peer", hint="https://host:18083")
    port = parts.port or _PORTS[parts.scheme]
    if parts.scheme == "http":
        return http.client.HTTPConnection(parts.hostname, port, timeout=TIMEOUT_S)
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:
        raise ConfigError(f"cannot read {ca_file}: {error.strerror}") from error
    return http.client.HTTPSConnection(parts.hostname, port, timeout=TIMEOUT_S, context=context)


def _refused(url: str, answer: http.client.HTTPResponse) -> ConfigError | StorageUnavailable:
    try:
        problem = msgspec.json.decode(answer.read(_PROBLEM_BYTES_MAX), type=_Problem)
    except (ValueError, OSError, http.client.HTTPException):
        problem = _Problem()
    text = f"{url} answers {answer.status}: {problem.message or answer.reason}"
    if answer.status in _REFUSALS:
        return ConfigError(text, hint=problem.hint or "the token must be one of that node")
    return StorageUnavailable(text, hint=problem.hint)
