"""The batch reads of ``spark.read.format("cursorq")``: which view is which reader, with which columns.

``messages``, ``deadletters`` and ``markers`` are ranges of a log, fixed when a DataFrame first runs, because
Spark plans one of a Python source once: ``load()`` again for what came later. ``cursors``, ``stats`` and
``outstanding`` are states, read anew by every action.
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
from spark_cursor_source.spark.views.columns import Columns


def view_columns(options: ViewOptions) -> Columns:
    """Names and types of the columns of a view."""
    match options.view:
        case View.MESSAGES:
            return view_messages.columns(options)
        case View.CURSORS:
            return view_cursors.COLUMNS
        case View.STATS:
            return view_stats.COLUMNS
        case View.OUTSTANDING:
            return view_outstanding.COLUMNS
        case View.DEADLETTERS:
            return view_dead_letters.columns(options)
        case View.MARKERS:
            return view_markers.COLUMNS


def view_reader(options: ViewOptions) -> DataSourceReader:
    """What reads a view; each is documented where it is written."""
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
