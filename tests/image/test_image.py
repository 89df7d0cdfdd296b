"""The image: built by the steps of its Dockerfile in a clean root, run as a container would be."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import __version__
from perdure.bench.ports import free_port
from tests.support.bounds import HANG_S
from tests.support.needs import missing
from tools.image import BASE, Image, build, make_base

ADDED_BYTES_MAX = 140 * 1024 * 1024
"""What the image adds to its base, pure; compiled modules are 12 MiB more."""

UNSHARE = shutil.which("unshare") or "/usr/bin/unshare"

# The first of them makes the base and the image: minutes where all of CI runs beside it.
pytestmark = pytest.mark.timeout(1_800)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        missing("an image is built as root, with mmdebstrap")
    target = tmp_path_factory.mktemp("image")
    try:
        make_base(BASE)
    except subprocess.SubprocessError as error:
        pytest.skip(f"no clean root could be made: {error}")
    yield build(target, arguments={"PERDURE_PURE": "1"})
    # Roots are large, and pytest keeps the folders of three runs.
    shutil.rmtree(target)


class Container:
    """A process that is number 1 of a namespace of its own, and commands beside it."""

    def __init__(self, image: Image, log: Path = Path(os.devnull)) -> None:
        self.log = log
        self.image = image
        self.port = free_port()
        self.environment = {
            **image.environment,
            "PERDURE__LISTENERS__TCP__BIND": f"127.0.0.1:{self.port}",
            "PERDURE__LISTENERS__WS__ENABLED": "false",
            "PERDURE__HTTP__BIND": f"127.0.0.1:{free_port()}",
            "PERDURE__METRICS__BIND": f"127.0.0.1:{free_port()}",
        }
        self.process: subprocess.Popen[str] | None = None

    def run(self, *program: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.image.command(list(program)),
            env=self.environment, input=given, capture_output=True, text=True,
            timeout=HANG_S, check=False,
        )  # fmt: skip

    def start(self) -> None:
        programs = self.image.programs
        command = [*programs["ENTRYPOINT"], *programs["CMD"]]
        with self.log.open("a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [UNSHARE, "--pid", "--fork", "--kill-child", *self.image.command(command)],
                env=self.environment, stderr=log, stdout=subprocess.DEVNULL, text=True,
            )  # fmt: skip

    def first_process(self) -> int:
        """The number, out here, of the namespace's process 1."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(children.read_text(encoding="ascii").split()[0])

    def close(self) -> None:
        """Kill the namespace, if it runs.

        It does not end with ``unshare``: a process that changes its user has no parent's death
        signal any more.
        """
        if self.process is not None and self.process.poll() is None:
            os.kill(self.first_process(), signal.SIGKILL)
            self.process.wait(HANG_S)

    def wait_healthy(self) -> None:
        until = time.monotonic() + HANG_S
        while (done := self.run(*self.image.programs["HEALTHCHECK"])).returncode:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text(encoding="utf-8")
            assert time.monotonic() < until, done.stderr


@pytest.fixture(scope="module")
def container(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """One with a user, which has started and is healthy."""
    made = Container(image, tmp_path_factory.mktemp("log") / "log")
    told = made.run("perdure", "passwd", "/data/users", "alice", "--stdin", given="correct horse\n")
    assert told.returncode == 0, told.stderr
    made.start()
    try:
        made.wait_healthy()
        yield made
    finally:
        made.close()


def test_without_a_user_it_says_what_to_do(image: Image) -> None:
    told = Container(image).run(*image.programs["ENTRYPOINT"], *image.programs["CMD"])
    assert told.returncode == 78
    assert "auth.password_file" in told.stderr


def test_it_holds_what_runs_and_nothing_more(image: Image) -> None:
    assert image.user == "1000:1000"
    assert image.metadata["VOLUME"] == image.directory == "/data"
    added = subprocess.run(
        ["du", "-sb", str(image.root / "usr/local/lib")], capture_output=True, text=True, check=True
    )
    assert int(added.stdout.split()[0]) < ADDED_BYTES_MAX
    assert not (image.root / "source").exists()
    assert not list((image.root / "usr/local/lib/perdure/bin").glob("pip*"))
    for extra in ("starlette", "asyncpg", "hiredis", "confluent_kafka", "jwt", "argon2"):
        assert list((image.root / "usr/local/lib").glob(f"perdure/lib/*/site-packages/{extra}")), (
            extra
        )
    # Nobody but root may change what runs.
    writable = ["find", "/usr/local/lib", "/etc/perdure", "-not", "-type", "l", "-writable"]
    found = subprocess.run(
        image.command(writable), capture_output=True, text=True, timeout=HANG_S, check=True
    )
    assert found.stdout == ""


def test_a_message_survives_its_container(container: Container) -> None:
    port, as_alice = str(container.port), ("-u", "alice", "--password-file", "/data/secret")
    assert container.run("sh", "-c", "echo correct horse > /data/secret").returncode == 0
    sub = (
        "perdure",
        "sub",
        "-h",
        "127.0.0.1",
        "-p",
        port,
        *as_alice,
        "-c",
        "-i",
        "cellar",
        "-q",
        "1",
        "-t",
        "a/#",
    )
    subscribed = container.run(*sub, "-E")
    assert subscribed.returncode == 0, subscribed.stderr
    sent = container.run(
        "perdure",
        "pub",
        "-h",
        "127.0.0.1",
        "-p",
        port,
        *as_alice,
        "-q",
        "1",
        "-t",
        "a/b",
        "-m",
        "21.5",
    )
    assert sent.returncode == 0, sent.stderr
    told = container.run("perdure", "status", "--json")
    assert json.loads(told.stdout)["storage"] == "ok"
    owner = (container.image.root / "data/CURRENT").stat()
    assert (owner.st_uid, owner.st_gid) == (1000, 1000)

    # The engine's stop: STOPSIGNAL to process 1, which has to have a handler of its own.
    assert container.process is not None
    os.kill(container.first_process(), getattr(signal, container.image.metadata["STOPSIGNAL"]))
    assert container.process.wait(HANG_S) == 0
    health = container.run(*container.image.programs["HEALTHCHECK"])
    assert health.returncode == 69

    container.start()
    container.wait_healthy()
    got = container.run(*sub, "-C", "1", "-W", str(HANG_S / 2))
    assert got.stdout.strip() == "21.5", got.stderr
    assert container.run("perdure", "--version").stdout.startswith(
        f"perdure, version {__version__}"
    )
