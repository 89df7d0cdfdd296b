"""An S3 server and an Iceberg REST catalog of our own, on free ports of the loopback address.

S3 is moto's server. The catalog is the Iceberg project's reference server, a Java process that
keeps its tables' names in an SQLite file and their metadata in the store; its jars come once
through Maven (``tools/iceberg/pom.xml``) into ``build/iceberg``; ``PERDURE_ICEBERG_JARS`` names
another folder that has them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final, final

from perdure.bench.ports import free_port
from tests.support.bounds import HANG_S

_ROOT: Final = Path(__file__).parents[2]
_POM: Final = _ROOT / "tools" / "iceberg" / "pom.xml"
_JARS: Final = Path(os.environ.get("PERDURE_ICEBERG_JARS", _ROOT / "build" / "iceberg"))
BUCKET: Final = "lake"
CREDENTIALS: Final = ("a-key-id", "a-secret-key")


def why_no_catalog() -> str:
    """What this machine lacks for a REST catalog; empty = nothing."""
    if shutil.which("java") is None:
        return "Java is not installed"
    if not (_JARS / "complete").exists() and shutil.which("mvn") is None:
        return "Maven is not installed, which fetches the catalog's jars"
    return ""


def _jars() -> Path:
    done = _JARS / "complete"
    _JARS.mkdir(parents=True, exist_ok=True)
    with (_JARS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
            subprocess.run(
                ["mvn", "-q", "-B", "-f", str(_POM), *goal, f"-DoutputDirectory={_JARS}"],
                check=True,
                capture_output=True,
                stdin=subprocess.DEVNULL,
            )
            done.touch()
    return _JARS


def _wait_for(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + HANG_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise AssertionError(f"{process.args!r} has ended")
        try:
            urllib.request.urlopen(url, timeout=HANG_S).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"{url} does not answer")


@final
class S3Server:
    """A store with one bucket."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _wait_for(self._process, self.url)
        urllib.request.urlopen(
            urllib.request.Request(f"{self.url}/{BUCKET}", method="PUT"), timeout=HANG_S
        ).close()

    @property
    def properties(self) -> tuple[str, ...]:
        """As ``pipeline.tables.properties`` has them."""
        return (
            f"s3.endpoint={self.url}",
            "s3.region=us-east-1",
            f"s3.access-key-id={CREDENTIALS[0]}",
            f"s3.secret-access-key={CREDENTIALS[1]}",
        )

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


@final
class RestCatalog:
    """The Iceberg project's REST catalog.

    Args:
        home: for its SQLite file.
        store: where tables are.
    """

    def __init__(self, home: Path, store: S3Server) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._home = home
        self._store = store
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it on what it had."""
        settings = {
            "REST_PORT": str(self.port),
            "WAREHOUSE": f"s3://{BUCKET}/warehouse",
            "URI": f"jdbc:sqlite:{self._home / 'rest.db'}",
            "CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
            "IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
            "S3_ENDPOINT": self._store.url,
            "S3_PATH__STYLE__ACCESS": "true",
        }
        environment = {f"CATALOG_{name}": value for name, value in settings.items()}
        environment |= {
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": CREDENTIALS[0],
            "AWS_SECRET_ACCESS_KEY": CREDENTIALS[1],
        }
        jvm = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        main = "org.apache.iceberg.rest.RESTCatalogServer"
        with (self._home / "rest.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["java", *jvm, "-cp", f"{_jars()}/*", main],
                env={**os.environ, **environment},
                stdout=log,
                stderr=log,
            )
        _wait_for(self._process, f"{self.url}/v1/config")

    def kill(self) -> None:
        """End it at once; what it had stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def is_reachable(self) -> bool:
        """Whether somebody listens."""
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", self.port)) == 0
