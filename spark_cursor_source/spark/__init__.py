"""All modules that need pyspark: the data source, sinks, actions, the tracker's query and the views.

These modules adapt Spark's interfaces to ``consumer``, ``tracker`` and ``admin`` and contain no queue logic
of their own. No other package imports pyspark, except ``devkit.spark_session``.
"""
