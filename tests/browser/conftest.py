"""A broker with sessions, its dashboard, and a browser: one of each for all tests."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from perdure.bench.ports import free_port
from tests.support.bounds import HANG_S
from tests.support.needs import missing
from tests.support.process import perdure_command

PASSWORD = "correct horse battery"


@final
class Device:
    """A client of its own, which runs until it is told to go."""

    def __init__(self, port: int, client_id: str, *, subscribe: str = "") -> None:
        self.client_id = client_id
        self.client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, client_id=client_id, protocol=mqtt.MQTTv5
        )
        self.client.on_disconnect = self._gone
        self.is_gone = False
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 3_600
        self.client.connect("127.0.0.1", port, clean_start=True, properties=properties)
        self.client.loop_start()
        wait_until(self.client.is_connected)
        if subscribe:
            done: list[int] = []
            self.client.on_subscribe = lambda *_: done.append(1)
            self.client.subscribe(subscribe, 1)
            wait_until(lambda: bool(done))

    def _gone(self, client: mqtt.Client, *_: Any) -> None:
        self.is_gone = True
        # It does not come back by itself.
        client._thread_terminate = True

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publish, and wait for the acknowledgement."""
        self.client.publish(topic, payload, 1, retain).wait_for_publish(HANG_S)

    def leave(self) -> None:
        """Disconnect; the session stays."""
        self.client.disconnect()
        self.client.loop_stop()


def wait_until(condition: Any) -> None:
    """Wait for something that comes by itself."""
    deadline = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)


@final
class Scene:
    """A broker that runs."""

    def __init__(self, folder: Path) -> None:
        self.port, http_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{http_port}"
        self.data = folder / "db"
        self._log = folder / "log"
        settings = (
            f"http.bind=127.0.0.1:{http_port}",
            f"listeners.ws.bind=127.0.0.1:{free_port()}",
            # Nobody is there: it says so, and keeps what it has to forward.
            "forwarders.copy.type=mqtt",
            f"forwarders.copy.url=mqtt://127.0.0.1:{free_port()}",
            "forwarders.copy.filter=[nowhere/#]",
            "auth.chain=[certificate, password, tokens, anonymous]",
            f"auth.tokens.store={folder / 'tokens.db'}",
            "alarms.delivery_lag_s=1",
            "alarms.raise_after_s=0",
            "alarms.check_interval_s=1",
        )
        given = [word for setting in settings for word in ("--set", setting)]
        command = perdure_command(self.data, self.port, *given)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(lambda: "server.started" in self._log.read_text())

    @property
    def setup_link(self) -> str:
        """As the log has it."""
        found = re.search(r"http://[^\s\"]*/ui/setup\?token=\w+", self._log.read_text())
        assert found is not None
        return found.group()

    def cli(self, *args: str, stdin: str = "") -> str:
        """What a command prints."""
        line = [sys.executable, "-m", "perdure", *args, "--data", str(self.data)]
        return subprocess.run(
            line, input=stdin, capture_output=True, text=True, check=True, timeout=HANG_S
        ).stdout

    def device(self, client_id: str, *, subscribe: str = "") -> Device:
        """A new client."""
        return Device(self.port, client_id, subscribe=subscribe)

    @contextlib.contextmanager
    def hung(self) -> Iterator[None]:
        """The broker does nothing meanwhile; its HTTP process does."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End the broker."""
        self._process.terminate()
        self._process.wait(HANG_S)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    for module in ("starlette", "jinja2", "argon2"):
        pytest.importorskip(module)
    made = Scene(tmp_path_factory.mktemp("dashboard"))
    try:
        for number in range(6):
            made.device(f"pump-{number}", subscribe="plant/#").leave()
        line = made.device("line-7")
        for number in range(20):
            line.publish("plant/7/temperature", str(20 + number).encode())
        line.publish("plant/7/state", b'{"on": true}', retain=True)
        yield made
        line.leave()
    finally:
        made.stop()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    found = os.environ.get("PERDURE_CHROMIUM") or shutil.which("chromium")
    if found is None:
        missing("Chromium is not installed")
    playwright = pytest.importorskip("playwright.sync_api")
    # Its event loop runs until it ends: no other test of this process could have one.
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def administrator(scene: Scene, chromium: Any) -> Any:
    """What a browser keeps that has followed the setup link."""
    context = chromium.new_context()
    page = context.new_page()
    page.goto(scene.setup_link)
    page.get_by_label("User name").fill("ada")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_label("The same again").fill(PASSWORD)
    page.get_by_role("button", name="Make the administrator").click()
    page.wait_for_url("**/ui/")
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture
def page(chromium: Any, administrator: Any) -> Iterator[Any]:
    """A page of the administrator, on which nothing goes wrong unseen.

    What ``wait_for_function`` waits for must be a function: a text is evaluated anew at each look,
    which the page's policy refuses from the second one on.
    """
    context = chromium.new_context(
        storage_state=administrator, viewport={"width": 1280, "height": 900}
    )
    context.set_default_timeout(HANG_S * 1000)
    opened = context.new_page()
    wrong: list[str] = []
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    opened.wrong = wrong
    yield opened
    context.close()
    assert wrong == []
