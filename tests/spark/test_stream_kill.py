"""kill -9 of a query's driver and of the broker, at random, at 5,000 messages a second."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from perdure.errors import ConfigError
from tests.spark.broker import Broker, Publisher
from tests.support.bounds import rounds_s
from tests.support.seeds import chosen_seed

pytest.importorskip("pyspark")
pytest.importorskip("uvicorn")
from perdure.pipeline import session
from tests.spark.stream_driver import Driver, whole_log

SEED = chosen_seed()
ROUNDS = int(os.environ.get("PERDURE_CRASH_ROUNDS") or 2)
BURST, PAUSE_S = 250, 0.05
"""5,000 a second, as long as the broker runs and the machine keeps up."""

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(rounds_s(ROUNDS)),
    pytest.mark.filterwarnings("default"),
]


@pytest.fixture
def _java() -> None:
    try:
        session.check_java()
    except ConfigError as error:
        pytest.skip(error.message)


@pytest.mark.usefixtures("_java")
@pytest.mark.parametrize("source", ["path", "url"])
def test_each_message_is_in_the_sink_once_and_in_order(source: str, tmp_path: Path) -> None:
    print(f"\nrepeat with PERDURE_SEED={SEED}")
    choose = random.Random(f"{SEED} {source}")
    with Broker(tmp_path, hides=False) as broker:
        options = {"path": str(broker.data)}
        if source == "url":
            options = {"url": broker.url, "tokenFile": str(broker.token_file)}
        home = tmp_path / "query"
        home.mkdir()
        driver = Driver(home, options, seed=SEED)
        publisher = Publisher(broker.port, burst=BURST, pause_s=PAUSE_S)
        publisher.start()
        driver.start()
        rounds = ROUNDS if source == "path" else -(-ROUNDS // 2)
        for _ in range(rounds):
            driver.wait_for_more()
            time.sleep(choose.uniform(0, 1))
            for victim in choose.sample(["driver", "broker"], 2):
                # The other one dies while this one works, or while it starts.
                time.sleep(choose.choice([0, choose.uniform(0, 6)]))
                if victim == "driver":
                    driver.kill()
                    driver.start()
                else:
                    broker.kill()
                    broker.start()
        publisher.stop()
        wanted = whole_log(broker.data)
        driver.wait_for(max(wanted))
        driver.kill()
    batches = driver.batches()
    # Batches follow each other in the order of the log, so the order of each stream is kept.
    found = [offset for rows in batches for offset in sorted(row["offset"] for row in rows)]
    assert found == sorted(wanted), f"seed {SEED}"
    for rows in batches:
        assert all(wanted[row["offset"]] == (row["topic"], row["payload"]) for row in rows)
    numbers = {int(payload[10:-1]) for _, payload in wanted.values()}
    assert publisher.acknowledged <= numbers, f"seed {SEED}"
    assert len(publisher.acknowledged) > 5_000
    # Each round waits for one, and so does the end.
    assert len(batches) > rounds
