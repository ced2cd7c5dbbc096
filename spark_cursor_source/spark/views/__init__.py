"""Views: the batch reads of ``spark.read.format("cursorq")``, with their readers and columns.

``messages``, ``deadletters`` and ``markers`` read ranges of a log. Spark plans a DataFrame of a Python source
once, so the ranges are fixed when the DataFrame first runs. Call ``load()`` again to read later records.
``cursors``, ``stats`` and ``outstanding`` show the current state: every action reads it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql.datasource import DataSourceReader

from spark_cursor_source.options.view import View, ViewOptions
from spark_cursor_source.spark.views import cursors as view_cursors
from spark_cursor_source.spark.views import dead_letters as view_dead_letters
from spark_cursor_source.spark.views import markers as view_markers
from spark_cursor_source.spark.views import messages as view_messages
from spark_cursor_source.spark.views import outstanding as view_outstanding
from spark_cursor_source.spark.views import stats as view_stats
from spark_cursor_source.topics.message_columns import Columns

#: columns and reader of each view
_VIEWS: Mapping[View, tuple[Callable[[ViewOptions], Columns], Callable[[ViewOptions], DataSourceReader]]] = {
    View.MESSAGES: (view_messages.columns, view_messages.MessagesReader),
    View.CURSORS: (lambda _: view_cursors.COLUMNS, view_cursors.CursorsReader),
    View.STATS: (lambda _: view_stats.COLUMNS, view_stats.StatsReader),
    View.OUTSTANDING: (view_outstanding.columns, view_outstanding.OutstandingReader),
    View.DEADLETTERS: (view_dead_letters.columns, view_dead_letters.DeadLettersReader),
    View.MARKERS: (lambda _: view_markers.COLUMNS, view_markers.MarkersReader),
}


def view_columns(options: ViewOptions) -> Columns:
    """Returns the names and types of the columns of a view."""
    return _VIEWS[options.view][0](options)


def view_reader(options: ViewOptions) -> DataSourceReader:
    """Returns the reader of a view. Each reader class documents its view."""
    return _VIEWS[options.view][1](options)
