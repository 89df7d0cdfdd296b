"""The example, on what a real client has published to a broker that runs."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.spark.broker import Broker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("default"),
]

EXAMPLE = Path(__file__).parents[2] / "examples" / "log_as_a_table.py"
METRICS = ("temperature", "pressure")


def publish(port: int, count: int, *, begin: int = 0) -> None:
    """Readings of three machines, published with QoS 1 by paho."""
    from paho.mqtt import client as paho

    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "plant", protocol=paho.MQTTv5)
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        for number in range(begin, begin + count):
            topic = f"plant/machine-{number % 3}/{METRICS[number // 3 % 2]}"
            # One of them is far from all others.
            value = 1_000 if number == 47 else 20 + number % 3 + number // 3 % 2 / 2
            payload = json.dumps({"value": value})
            client.publish(topic, payload, qos=1).wait_for_publish(30)
        client.publish("other", "not a reading", qos=1).wait_for_publish(30)
    finally:
        client.disconnect()
        client.loop_stop()


def test_the_example(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Broker(tmp_path, hides=False) as broker:
        publish(broker.port, 120)
        monkeypatch.setenv("PERDURE_DATA", str(broker.data))
        monkeypatch.setenv("PERDURE_OUT", str(tmp_path / "out"))
        cells = runpy.run_path(str(EXAMPLE))
        told = capsys.readouterr().out
        assert "plant/machine-" in told
        assert "120 rows" in told
        averages = {row.machine: row.asDict() for row in cells["by_machine"].collect()}
        assert averages["machine-0"]["temperature"] == 20.0
        assert averages["machine-1"]["pressure"] == 21.5
        assert len(averages) == 3
        latest = [(row.machine, row.metric, row.value) for row in cells["latest"].collect()]
        assert latest[0] == ("machine-0", "pressure", 20.5)
        assert len(latest) == 6
        unusual = [(row.machine, row.value) for row in cells["unusual"].collect()]
        assert unusual == [("machine-2", 1_000.0)]
        publish(broker.port, 6, begin=120)
        assert cells["copy_new_rows"]() == 126
