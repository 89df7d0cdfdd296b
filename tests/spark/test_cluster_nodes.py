"""A stream and an archive that are given three nodes run on when nodes die, each message once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.exit_codes import ExitCode
from perdure.cli.main import run
from perdure.errors import ConfigError
from tests import servers
from tests.spark.broker import Broker, Publisher
from tests.support.needs import missing
from tests.support.seeds import chosen_seed

pytest.importorskip("pyspark")
pytest.importorskip("uvicorn")
pytest.importorskip("confluent_kafka")

from perdure.pipeline import session
from tests.spark.stream_driver import Driver, whole_log

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("default"),
]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Broker]]:
    try:
        session.check_java()
    except ConfigError as error:
        missing(error.message)
    name = servers.kafka_topic()
    with ExitStack() as stack:
        made = []
        for number in (1, 2, 3):
            home = tmp_path / f"n{number}"
            home.mkdir()
            settings = {
                "node.name": f"n{number}",
                "cluster.name": name,
                "cluster.kafka": servers.kafka().servers,
                "cluster.dead_after": "3s",
            }
            made.append(stack.enter_context(Broker(home, hides=False, settings=settings)))
        yield made


def archived(place: Path, read: Any) -> list[int]:
    """The offsets in all tables of an archive, in order."""
    return sorted(
        offset
        for file in place.rglob("*.parquet")
        for offset in read(file, columns=["offset"], partitioning=None)["offset"].to_pylist()
    )


def test_stream_and_archive_outlive_the_nodes_that_they_read(
    nodes: list[Broker], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pyarrow.parquet as pq

    first, second, third = nodes
    urls = ",".join(each.url for each in nodes)
    home, lake = tmp_path / "query", tmp_path / "lake"
    home.mkdir()
    options = {"url": urls, "tokenFile": str(first.token_file), "rowsPerPartition": "500"}
    driver = Driver(home, options, seed=chosen_seed())
    archive = ["pipeline", "archive", "--url", urls, "--token-file", str(first.token_file)]
    archive += ["--to", str(lake), "--format", "parquet", "--once", "--json"]
    publisher = Publisher(third.port, burst=50, pause_s=0.05)
    publisher.start()
    try:
        driver.start()
        driver.wait_for_more()
        assert run(archive) == ExitCode.OK, capsys.readouterr().err
        first.kill()
        driver.wait_for_more()
        assert run(archive) == ExitCode.OK, capsys.readouterr().err
        first.start()
        driver.wait_for_more()
        second.kill()
        driver.wait_for_more()
        assert run(archive) == ExitCode.OK, capsys.readouterr().err
        second.start()
        driver.wait_for_more()
    finally:
        publisher.stop()
    wanted = whole_log(third.data)
    driver.wait_for(max(wanted))
    driver.kill()
    assert run(archive) == ExitCode.OK, capsys.readouterr().err
    found = sorted(row["offset"] for rows in driver.batches() for row in rows)
    assert found == sorted(wanted)
    assert archived(lake, pq.read_table) == sorted(wanted)
    assert publisher.acknowledged <= {int(payload[10:-1]) for _, payload in wanted.values()}
    assert len(publisher.acknowledged) > 1_000
