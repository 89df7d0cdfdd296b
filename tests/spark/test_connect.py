"""Spark Connect: a client that shares no process with Spark reads a directory and a broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.errors import ConfigError
from tests.spark.broker import Broker, publish
from tests.support.bounds import HANG_S
from tests.support.needs import missing

pytest.importorskip("pyspark")
pytest.importorskip("uvicorn")
pytest.importorskip("grpc_status")
from perdure.pipeline import session

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("default"),
]

PROGRAM = Path(__file__).parent / "programs" / "connect.py"


def test_directory_and_broker_through_connect(tmp_path: Path) -> None:
    try:
        session.check_java()
    except ConfigError as error:
        missing(error.message)
    with Broker(tmp_path, hides=False) as broker:
        count = publish(broker.port, 3_000)
        home = tmp_path / "client"
        home.mkdir()
        command = [sys.executable, str(PROGRAM), str(broker.data), broker.url]
        done = subprocess.run(
            [*command, str(broker.token_file), str(home)],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
                "PYSPARK_PYTHON": sys.executable,
                "PYSPARK_DRIVER_PYTHON": sys.executable,
            },
            cwd=home,
            capture_output=True,
            text=True,
            check=False,
            timeout=2 * HANG_S,  # a Java machine starts, and Spark in it
        )
    assert done.returncode == 0, done.stderr[-4_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["is_connect"]
    assert found["rows"] >= count
    assert (found["equal"], found["streamed"]) == (True, True)
    assert found["chosen"] == pytest.approx(found["rows"] / 7, abs=1)
    (line,) = found["problem"]
    assert "refused the token" in line
