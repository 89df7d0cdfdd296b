"""Every topic is a table: the log in Spark.

Reads the log through ``storage``, never a broker's memory. ``schema``, ``options``, ``decode``
and ``log_source`` are plain functions over Arrow data and know no Spark; ``source`` and
``session`` are what Spark meets.
"""
