"""Views: the batch reads of ``spark.read.format("cursorq")``, with their readers and columns.

``messages``, ``deadletters`` and ``markers`` read ranges of a log. Spark plans a DataFrame of a Python source
once, so the ranges are fixed when the DataFrame first runs. Call ``load()`` again to read later records.
``cursors``, ``stats`` and ``outstanding`` show the current state: every action reads it again.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSourceReader

from spark_cursor_source.options.view import View, ViewOptions
from spark_cursor_source.spark.views import cursors as view_cursors
from spark_cursor_source.spark.views import dead_letters as view_dead_letters
from spark_cursor_source.spark.views import markers as view_markers
from spark_cursor_source.spark.views import messages as view_messages
from spark_cursor_source.spark.views import outstanding as view_outstanding
from spark_cursor_source.spark.views import stats as view_stats
from spark_cursor_source.topics.message_columns import Columns


def view_columns(options: ViewOptions) -> Columns:
    """Returns the names and types of the columns of a view."""
    match options.view:
        case View.MESSAGES:
            return view_messages.columns(options)
        case View.CURSORS:
            return view_cursors.COLUMNS
        case View.STATS:
            return view_stats.COLUMNS
        case View.OUTSTANDING:
            return view_outstanding.columns(options)
        case View.DEADLETTERS:
            return view_dead_letters.columns(options)
        case View.MARKERS:
            return view_markers.COLUMNS


def view_reader(options: ViewOptions) -> DataSourceReader:
    """Returns the reader of a view. Each reader class documents its view."""
    match options.view:
        case View.MESSAGES:
            return view_messages.MessagesReader(options)
        case View.CURSORS:
            return view_cursors.CursorsReader(options)
        case View.STATS:
            return view_stats.StatsReader(options)
        case View.OUTSTANDING:
            return view_outstanding.OutstandingReader(options)
        case View.DEADLETTERS:
            return view_dead_letters.DeadLettersReader(options)
        case View.MARKERS:
            return view_markers.MarkersReader(options)
