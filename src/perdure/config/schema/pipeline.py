"""The data pipeline: the section `pipeline`, of which the broker reads where the archive is."""

from __future__ import annotations

from typing import Annotated, Literal, final

from perdure.config.fields import about
from perdure.config.schema.section import DAY_S, MIB, Section


@final
class TablesConfig(Section, frozen=True):
    """Where tables live."""

    place: Annotated[
        str,
        about(
            "A directory, or the URI of an object store (`s3://bucket/archive`, `gs://`, "
            "`abfss://`): the state of the archive, and tables where no catalog says otherwise.",
        ),
    ] = ""
    format: Annotated[
        Literal["iceberg", "delta", "parquet"],
        about("Of new tables; `parquet` is for directories only."),
    ] = "iceberg"
    namespace: Annotated[str, about("Of the tables in an Iceberg catalog.")] = "perdure"
    catalog: Annotated[
        str,
        about(
            "Name of an Iceberg catalog: of your pyiceberg settings, or of the one that the next "
            "settings describe. Empty, and without them: an SQLite file beside the tables."
        ),
    ] = ""
    catalog_type: Annotated[
        Literal["", "rest", "sql", "hive", "glue", "dynamodb"],
        about("Kind of the catalog, as pyiceberg has them."),
    ] = ""
    catalog_uri: Annotated[
        str,
        about(
            "Of the catalog: `https://catalog:8181`, `postgresql+psycopg2://user:pass@host/db`, "
            "`sqlite:////var/lib/perdure/catalog.db`, `thrift://hive:9083`.",
            secret=True,
        ),
    ] = ""
    warehouse: Annotated[
        str, about("Of the catalog: a name that it knows, or where its tables are.")
    ] = ""
    properties: Annotated[
        tuple[str, ...],
        about(
            "pyiceberg's other settings for catalog and store, each `name=value`: "
            "`s3.endpoint=http://127.0.0.1:9000`, `token=${file:/run/secrets/lake}`. Without any "
            "the store's own environment variables hold.",
            secret=True,
        ),
    ] = ()
    partition: Annotated[
        tuple[str, ...],
        about(
            "How rows are divided among files of an Iceberg table: `day(published_at)`, "
            "`bucket(16, client_id)`. May change: files that are there stay as they are. A table "
            "without such a column goes without."
        ),
    ] = ()
    sort: Annotated[
        tuple[str, ...],
        about("Columns that maintenance sorts rows of a file by: `topic`, `published_at desc`."),
    ] = ()


@final
class LogSourceConfig(Section, frozen=True):
    """The log that is read; without `url` the data directory of this configuration."""

    url: Annotated[
        str,
        about(
            "`http.bind` of a running broker, `http://host:18083`; several with commas between "
            "them: the first that answers is asked."
        ),
    ] = ""
    token_file: Annotated[
        str, about("File with its token; else the variable `PERDURE_TOKEN`.", unit="path")
    ] = ""
    ca_file: Annotated[str, about("Authority of its certificate.", unit="path")] = ""


@final
class PayloadConfig(Section, frozen=True):
    """Payloads of some topics."""

    topic: Annotated[str, about("Topic filter; the first that matches holds.")] = "#"
    format: Annotated[
        Literal["json", "cbor", "msgpack", "csv", "sparkplug", "protobuf", "avro", "detect"],
        about(
            "What they are. `detect` goes by the content type, then tries JSON, and maps of CBOR "
            "and MessagePack."
        ),
    ] = "detect"
    schema: Annotated[
        str,
        about("File: an Avro schema, or what `protoc --include_imports -o` writes.", unit="path"),
    ] = ""
    message: Annotated[str, about("Full name of the message, for `protobuf`.")] = ""
    registry: Annotated[
        str,
        about(
            "URL of a schema registry: values have Confluent's header, and `avro` takes the schema "
            "from there."
        ),
    ] = ""
    registry_auth: Annotated[str, about("`user:password` for it.", secret=True)] = ""
    columns: Annotated[
        tuple[str, ...], about("Fields of a `csv` line: `name`, or `name:double` and the like.")
    ] = ()
    delimiter: Annotated[str, about("Between fields of `csv`.")] = ","


@final
class ArchiveConfig(Section, frozen=True):
    """The log into tables."""

    every_s: Annotated[
        int, about("Pause between rounds in `pipeline run`; 0 = off.", unit="s", ge=0)
    ] = 60
    name: Annotated[str, about("Of the archive, for `retention.keep_for`.")] = "archive"
    topics: Annotated[tuple[str, ...], about("Topic filters; none = everything.")] = ()
    tables: Annotated[
        tuple[str, ...],
        about("Tables for the topics of patterns: `climate=rooms/{room}/{sensor}`."),
    ] = ()
    learned: Annotated[
        bool, about("Tables for the topic structures that the log has learned, too.")
    ] = True
    fields: Annotated[bool, about("Fields of payloads as columns.")] = True
    rows_per_round: Annotated[
        int, about("Most messages of a round, which is a commit.", ge=1_000, le=100_000_000)
    ] = 5_000_000
    on_data_loss: Annotated[
        Literal["fail", "skip"],
        about("What to do if messages were dropped before they were archived."),
    ] = "fail"


@final
class MaintainConfig(Section, frozen=True):
    """Tables are kept fit."""

    every_s: Annotated[
        int, about("Pause between runs in `pipeline run`; 0 = off.", unit="s", ge=0)
    ] = DAY_S
    keep_s: Annotated[
        int,
        about(
            "States of a table, and files that nothing needs, are deleted when they are older.",
            unit="s",
            ge=0,
        ),
    ] = 7 * DAY_S
    file_bytes: Annotated[
        int, about("Smaller files are put together to about this.", unit="bytes", ge=1 * MIB)
    ] = 128 * MIB


@final
class LearnConfig(Section, frozen=True):
    """Topic structures are learned from all of the log."""

    every_s: Annotated[
        int, about("Pause between runs in `pipeline run`; 0 = off.", unit="s", ge=0)
    ] = 0
    range_s: Annotated[int, about("How far back a run looks.", unit="s", ge=1)] = 7 * DAY_S
    write: Annotated[str, about("File that the proposal is written to.", unit="path")] = (
        "proposal.json"
    )


@final
class StatsConfig(Section, frozen=True):
    """Traffic is counted."""

    every_s: Annotated[
        int, about("Pause between runs in `pipeline run`; 0 = off.", unit="s", ge=0)
    ] = 0
    range_s: Annotated[int, about("How far back a run looks.", unit="s", ge=1)] = 1 * DAY_S
    write: Annotated[
        str, about("File that the report is written to: `.html`, or JSON.", unit="path")
    ] = "stats.html"


@final
class PipelineConfig(Section, frozen=True):
    """The data pipeline: what `perdure pipeline` reads, and for replays the broker (`replay`)."""

    tables: TablesConfig = TablesConfig()
    log: LogSourceConfig = LogSourceConfig()
    payloads: tuple[PayloadConfig, ...] = ()
    archive: ArchiveConfig = ArchiveConfig()
    maintain: MaintainConfig = MaintainConfig()
    learn: LearnConfig = LearnConfig()
    stats: StatsConfig = StatsConfig()
    bind: Annotated[
        str,
        about(
            "`host:port` where `pipeline run` serves `/metrics`; empty = off.",
            unit="address",
        ),
    ] = ""
    lease_s: Annotated[
        int,
        about(
            "How long `pipeline run` holds an archive without a sign of life, before another one "
            "may take it.",
            unit="s",
            ge=5,
            le=3_600,
        ),
    ] = 60
    master: Annotated[
        str,
        about(
            "Where Spark runs, as `local[*]` or the address of a cluster. Empty: archive, learn "
            "and stats run without Spark and Java, on one core, and what needs Spark has it on "
            "this machine. `none`: nothing may start Spark."
        ),
    ] = ""
    memory: Annotated[str, about("Of the Spark driver.")] = "2g"
