"""One Spark session for all tests that need a Java machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import ConfigError
from tests.support.needs import missing


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("pyspark")
    from perdure.pipeline import session

    try:
        session.check_java()
    except ConfigError as error:
        missing(error.message)
    home = tmp_path_factory.mktemp("spark")
    # Workers are processes of their own: they import what this one imports.
    source = str(Path(perdure.__file__).parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
    made = session.build(
        master="local[2]",
        memory="768m",
        log_file=home / "spark.log",
        settings={
            # Compilers that warm up fast.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.warehouse.dir": str(home / "warehouse"),
            "spark.local.dir": str(home / "local"),
        },
    )
    yield made
    made.stop()
