"""Everything that needs pyspark: the data source, sinks, actions, the tracker's query, and the views.

These modules adapt Spark's interfaces to ``consumer``, ``tracker`` and ``admin`` and hold no rules of their
own. No other room imports pyspark, except ``devkit.spark_session``.
"""
