"""Archives of payloads in several formats: declared columns, misfits, and what changes later."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.config.schema import PayloadConfig
from perdure.errors import ConfigError, StorageUnavailable
from perdure.storage.rocksdb import RocksDatabase
from tests.unit.pipeline.logs import SECOND, START, append

pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")
pytest.importorskip("cbor2")
pytest.importorskip("fastavro")
import cbor2
import fastavro

from perdure.pipeline.jobs.archive import Archive, Wanted, execute_here
from perdure.pipeline.options import ReadOptions
from perdure.pipeline.payload_rules import rule_of
from perdure.pipeline.tables import parse_table
from tests.unit.payloads.test_decoders import AVRO
from tests.unit.pipeline.jobs.test_archive import rows, sink_of

pytestmark = pytest.mark.filterwarnings("default")

SPECS = tuple(map(parse_table, ("cbor=c/{n}", "csv=l/{n}", "avro=a/{n}", "mixed=m/{n}")))


class Registry(BaseHTTPRequestHandler):
    """Knows one schema; answers 500 while it is broken."""

    broken = False

    def do_GET(self) -> None:
        status = 500 if Registry.broken else 200 if self.path == "/schemas/ids/1" else 404
        body = json.dumps({"schema": AVRO}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def registry() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def avro(device: str, count: int) -> bytes:
    import io

    value = {
        "device": device,
        "value": 1.5,
        "count": count,
        "at": 0,
        "raw": b"",
        "position": {"lat": 1},
    }
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(AVRO)), value)
    return b"\x00\x00\x00\x00\x01" + stream.getvalue()


def test_each_topic_has_its_format(database: RocksDatabase, tmp_path: Path, registry: str) -> None:
    configured = [
        PayloadConfig(topic="c/#", format="cbor"),
        PayloadConfig(topic="l/#", format="csv", columns=("at:long", "t:double", "name")),
        PayloadConfig(topic="a/#", format="avro", registry=registry),
        PayloadConfig(topic="m/#"),
    ]
    root = tmp_path / "tables"

    def run() -> Any:
        return Archive(
            ReadOptions(str(tmp_path / "db")),
            sink_of("iceberg", root, database.format.database_id),
            Wanted(SPECS, learns=False, payloads=tuple(map(rule_of, configured))),
            directory=tmp_path,
            execute=execute_here,
        ).run_round()

    written = [
        ("c/1", cbor2.dumps({"t": 1, "deep": {"x": True}})),
        ("c/1", b"{}}"),
        ("l/1", b"17,3,x"),
        ("l/1", b"18.5,4,y"),
        ("a/1", avro("d1", 5)),
        ("a/1", b'{"json": 1}'),
        ("m/1", b'{"j": 1}'),
        ("m/1", cbor2.dumps({"c": 2})),
        ("m/1", msgspec.msgpack.encode({"m": 3})),
        ("m/1", b"\x00\x01"),
    ]
    append(database, [t for t, _ in written], at=START, payloads=[p for _, p in written])
    Registry.broken = True
    with pytest.raises(StorageUnavailable, match="answered 500"):
        run()
    Registry.broken = False
    done = run()
    assert done.rows == len(written)
    # What is no CBOR, what is no Avro, and the fraction in a column that was declared long.
    assert done.misfits == 3
    found = {spec.name: rows("iceberg", root, spec.name) for spec in SPECS}

    def columns(table: str, *names: str) -> list[Any]:
        return [tuple(row.get(name) for name in names) for row in found[table]]

    assert columns("cbor", "t", "deep_x") == [(1, True), (None, None)]
    assert columns("csv", "at", "t", "name") == [(17, 3.0, "x"), (None, 4.0, "y")]
    assert columns("avro", "payload_device", "device", "count") == [(None, "d1", 5), (None,) * 3]
    assert columns("mixed", "j", "c", "m") == [
        (1, None, None),
        (None, 2, None),
        (None, None, 3),
        (None, None, None),
    ]
    # The payload is always there as it came.
    assert [row["payload"] for table in found.values() for row in table] == [p for _, p in written]

    # A field more is a column more; what is there stays in its files.
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*.parquet")}
    append(database, ["c/2"], at=START + SECOND, payloads=[cbor2.dumps({"t": 2, "new": "n"})])
    assert run().columns == ("cbor.new",)
    assert [row["new"] for row in rows("iceberg", root, "cbor")] == [None, None, "n"]
    assert {path: path.stat().st_mtime_ns for path in before} == before

    # A later schema makes a column wider. What is there stays, though its payloads have no field
    # of that schema.
    configured[1] = PayloadConfig(topic="l/#", format="csv", columns=("at:double", "t:double"))
    append(database, ["l/2"], at=START + 2 * SECOND, payloads=[b"19.5,5"])
    assert run().misfits == 0
    found["csv"] = rows("iceberg", root, "csv")
    assert columns("csv", "at", "t", "name") == [
        (17.0, 3.0, "x"),
        (None, 4.0, "y"),
        (19.5, 5.0, None),
    ]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"format": "avro"}, "either schema or registry"),
        ({"format": "avro", "schema": "nowhere.avsc"}, "No such file"),
        ({"format": "protobuf"}, "needs schema"),
        ({"format": "csv", "columns": ("a:float",)}, "expected name or name:type"),
        ({"topic": "a/#/b"}, "last level"),
    ],
)
def test_wrong_rules_are_named(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        rule_of(PayloadConfig(**given))
