"""The four option classes, under one roof; each is documented where it is written."""

from spark_cursor_source.core.ack_options import AckAction, AckOptions
from spark_cursor_source.core.marker_version import MarkerVersion
from spark_cursor_source.core.source_options import AckMode, Isolation, SourceOptions
from spark_cursor_source.core.tracker_options import TrackerOptions
from spark_cursor_source.core.view_options import View, ViewOptions

__all__ = [
    "AckAction",
    "AckMode",
    "AckOptions",
    "Isolation",
    "MarkerVersion",
    "SourceOptions",
    "TrackerOptions",
    "View",
    "ViewOptions",
]
