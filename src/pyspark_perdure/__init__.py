"""Where Spark finds the data source ``perdure`` by itself.

Spark imports every module named ``pyspark_*`` when it looks for a source and takes its
``DefaultSource``. Keep this light: the readers are imported when they read.
"""

from perdure.pipeline.source import PerdureDataSource as DefaultSource

__all__ = ["DefaultSource"]
