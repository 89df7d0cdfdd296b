# %% [markdown]
# # The log as a table
#
# A notebook in the percent format: open it in an editor or a notebook that knows it, or run it as
# a program. It reads what clients have published to `plant/{machine}/{metric}`, numbers as JSON
# (`{"value": 21.5}`), from the data directory of a broker that may be running.
#
# Needs `pip install 'perdure[spark]'` and Java 17.

# %%
from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pyspark.sql import functions as f

from perdure.pipeline.session import build

DATA = os.environ.get("PERDURE_DATA", "perdure-data")
spark = build()

# %% [markdown]
# ## Three lines
#
# A topic filter is a seek: only what matches is read.

# %%
log = spark.read.format("perdure").option("topic", "plant/+/+").load(DATA)
log.select("published_at", "topic", log.payload.cast("string").alias("text"), "client_id").show(5)

# %% [markdown]
# ## Levels and fields as columns

# %%
levels = f.split("topic", "/")
readings = log.select(
    "offset",
    "published_at",
    levels[1].alias("machine"),
    levels[2].alias("metric"),
    f.from_json(f.col("payload").cast("string"), "value double").value.alias("value"),
).cache()

by_machine = (
    readings.groupBy("machine").pivot("metric").agg(f.round(f.avg("value"), 2)).orderBy("machine")
)
by_machine.show()

# %% [markdown]
# ## What came last
#
# The offset is the order of the log.

# %%
latest = (
    readings.groupBy("machine", "metric")
    .agg(f.max_by("value", "offset").alias("value"), f.max("published_at").alias("at"))
    .orderBy("machine", "metric")
)
latest.show()

# %% [markdown]
# ## What is unusual
#
# Values more than three standard deviations away from the mean of their metric.

# %%
usual = readings.groupBy("metric").agg(
    f.avg("value").alias("mean"), f.stddev("value").alias("deviation")
)
unusual = (
    readings.join(usual, "metric")
    .where("abs(value - mean) > 3 * deviation")
    .select("published_at", "machine", "metric", "value")
    .orderBy("offset")
)
unusual.show()

# %% [markdown]
# ## As it grows
#
# The same filter as a stream, into Parquet files; with `availableNow` it ends where the log ends
# now, and goes on from there when it is started again.

# %%
OUT = Path(os.environ.get("PERDURE_OUT") or tempfile.mkdtemp())


def copy_new_rows() -> int:
    """Bring the copy up to the end of the log; returns how many rows it has then."""
    stream = spark.readStream.format("perdure").option("topic", "plant/+/+").load(DATA)
    query = (
        stream.select("topic", "payload", "offset")
        .writeStream.format("parquet")
        .option("path", str(OUT / "copy"))
        .option("checkpointLocation", str(OUT / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return spark.read.parquet(str(OUT / "copy")).count()


copied = copy_new_rows()
print(f"{copied} rows")

# %% [markdown]
# For tables that others can read, with typed columns and exactly once, there is
# `perdure pipeline archive`; for what retention has dropped from the log, the option `catalog`. See
# `docs/howto/spark.md`.
