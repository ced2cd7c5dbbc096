"""The tracker: reads markers, advances the state of each subscription partition, and executes decisions.

The rules are in ``core.tracker``. This package plans the tracker's batches, folds markers, and writes
redeliveries, cursors and dead letters. Redeliveries and cursors are written in one transaction. ``Tracker``
needs no Spark; ``spark.tracker`` is the same tracker as a streaming query. The package imports ``interop``,
``topics`` and the layers below.
"""

from spark_cursor_source.tracker.standalone import Tracker

__all__ = ["Tracker"]
