"""Backups in an S3-compatible store: the only module that imports boto3.

``s3://bucket/prefix``, with ``?endpoint=https://host:port`` and ``?region=name`` where they are not
in the environment. Keys come from where boto3 looks for them: environment, profile, role.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final
from urllib.parse import parse_qsl, urlsplit

from perdure.backup.manifest import MARKER, MARKER_BYTES, check_marker, object_name
from perdure.backup.place import CHUNK_BYTES, Copied, Found
from perdure.errors import ConfigError, StorageCorrupt, StorageUnavailable

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_GRACE_S: Final = 86_400.0
"""A store has no lock: what no backup names may belong to one that is being made."""

_PART_BYTES: Final = 16 * 1024 * 1024
_ATTEMPTS: Final = 5
_DELETED_AT_ONCE: Final = 1_000
_OPTIONS: Final = frozenset({"endpoint", "region"})
_MISSING: Final = frozenset({"404", "NoSuchKey", "NotFound"})
_REFUSED: Final = frozenset(
    {"403", "AccessDenied", "InvalidAccessKeyId", "NoSuchBucket", "SignatureDoesNotMatch"}
)


def open_s3(url: str, *, setting: str) -> S3Place:
    """The place that a URL names; nothing is asked yet.

    Raises:
        ConfigError: it names none, or boto3 is not installed.
    """
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    if not parts.netloc or set(options) - _OPTIONS:
        raise ConfigError(
            f"{url} names no bucket, or has an option that is unknown",
            path=setting,
            hint="s3://bucket/prefix?endpoint=https://host:port&region=name",
        )
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise ConfigError(
            "an S3 store is named, and its client is not installed",
            path=setting,
            hint="pip install 'perdure[s3]'",
        ) from None
    config = Config(
        retries={"max_attempts": _ATTEMPTS, "mode": "standard"},
        connect_timeout=10,
        read_timeout=60,
    )
    client = boto3.client(
        "s3",
        endpoint_url=options.get("endpoint"),
        region_name=options.get("region"),
        config=config,
    )
    return S3Place(client, parts.netloc, parts.path.strip("/"))


@final
class S3Place:
    """A ``place.Place`` in a bucket, below a prefix.

    Args:
        client: of boto3.
        bucket: there already.
        prefix: without slashes at its ends; may be empty.
    """

    grace_s: float = _GRACE_S

    def __init__(self, client: S3Client, bucket: str, prefix: str) -> None:
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        self._client = client
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""

    def make(self) -> None:
        try:
            data = b"".join(self.read(MARKER))
        except StorageCorrupt:
            if self.find(""):
                raise ConfigError(
                    f"{self.url} is no place of backups: something else is in it",
                    path="--to",
                    hint="name an empty prefix, or one that backups were made in",
                ) from None
            self.put(MARKER, MARKER_BYTES)
            return
        check_marker(data, self.url)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        # None: what is younger than ``grace_s`` is not deleted.
        yield

    def free_bytes(self) -> int | None:
        return None

    def find(self, prefix: str) -> dict[str, Found]:
        found: dict[str, Found] = {}
        now_s = time.time()
        with self._errors():
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix + prefix
            )
            for page in pages:
                for each in page.get("Contents", ()):
                    age_s = now_s - each["LastModified"].timestamp()
                    found[each["Key"].removeprefix(self._prefix)] = Found(each["Size"], age_s)
        return found

    def put(self, name: str, data: bytes) -> None:
        with self._errors():
            self._client.put_object(Bucket=self._bucket, Key=self._prefix + name, Body=data)

    def put_file(self, source: Path, copied: Copied) -> tuple[str, int]:
        from boto3.s3.transfer import TransferConfig

        digest, size = hashlib.sha256(), 0
        try:
            with source.open("rb") as file:
                while data := file.read(CHUNK_BYTES):
                    digest.update(data)
                    size += len(data)
        except OSError as error:
            raise StorageUnavailable(f"{source} cannot be read: {error.strerror}") from error
        name = object_name(digest.hexdigest())
        # One after the other, so that the rate holds and a small machine is not flooded.
        config = TransferConfig(
            multipart_threshold=_PART_BYTES, multipart_chunksize=_PART_BYTES, use_threads=False
        )
        with self._errors():
            self._client.upload_file(
                str(source), self._bucket, self._prefix + name, Config=config, Callback=copied
            )
        return digest.hexdigest(), size

    def settle(self) -> None:
        """An object that was put is durable."""

    def read(self, name: str) -> Generator[bytes, None, None]:
        with self._errors(name):
            answer = self._client.get_object(Bucket=self._bucket, Key=self._prefix + name)
            with contextlib.closing(answer["Body"]) as body:
                while data := body.read(CHUNK_BYTES):
                    yield data

    def delete(self, names: list[str]) -> None:
        with self._errors():
            for first in range(0, len(names), _DELETED_AT_ONCE):
                chosen = names[first : first + _DELETED_AT_ONCE]
                answer = self._client.delete_objects(
                    Bucket=self._bucket,
                    Delete={
                        "Objects": [{"Key": self._prefix + name} for name in chosen],
                        "Quiet": True,
                    },
                )
                failed: list[Any] = list(answer.get("Errors", ()))
                if failed:
                    raise StorageUnavailable(
                        f"{self.url}: {len(failed)} objects could not be deleted: "
                        f"{failed[0].get('Message', '')}"
                    )

    @contextlib.contextmanager
    def _errors(self, name: str = "") -> Iterator[None]:
        """Errors of boto3 as those of our own tree."""
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

        try:
            yield
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code in _MISSING and name:
                raise StorageCorrupt(f"{self.url}: {name} is missing") from error
            text = f"{self.url}: {error}"
            if code in _REFUSED:
                raise ConfigError(
                    text, path="--to", hint="check the bucket's name, the keys and their rights"
                ) from error
            raise StorageUnavailable(text) from error
        except NoCredentialsError as error:
            raise ConfigError(
                f"{self.url}: {error}",
                path="--to",
                hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile",
            ) from error
        except (BotoCoreError, Boto3Error, OSError) as error:
            raise StorageUnavailable(f"{self.url}: {error}") from error
