"""A broker on a real server is read by its address, while it runs and after a kill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("uvicorn")
from perdure.pipeline.here import read_here
from perdure.pipeline.options import parse_options
from tests.spark.broker import TOKEN, Broker, publish
from tests.support.database_servers import PostgresServer, RedisServer

pytestmark = [pytest.mark.slow]

COUNT = 3_000


@pytest.fixture(
    params=[
        pytest.param("redis", marks=pytest.mark.redis),
        pytest.param("postgres", marks=pytest.mark.postgres),
    ]
)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    kind: str = request.param
    with RedisServer() if kind == "redis" else PostgresServer(durable=False) as server:
        settings = {"storage.backend": kind, f"storage.{kind}.url": server.url}
        with Broker(tmp_path, hides=False, settings=settings) as running:
            yield running


def payloads(broker: Broker, **options: str) -> list[bytes]:
    """What a reader finds, by offset."""
    given = {"url": broker.url, "token": TOKEN, **options}
    table = read_here(parse_options(given, 0, environ={}), ["offset", "payload"]).read_all()
    rows = sorted(
        zip(*(table.column(name).to_pylist() for name in table.schema.names), strict=True)
    )
    return [payload for _, payload in rows]


def test_all_is_read_once_and_in_order(broker: Broker) -> None:
    count = publish(broker.port, COUNT)
    found = payloads(broker, rowsPerPartition="1000")
    assert len(found) == count
    assert len(set(found)) == count
    broker.kill()
    broker.start()
    assert payloads(broker) == found
    assert payloads(broker, topic="no/such/topic") == []
