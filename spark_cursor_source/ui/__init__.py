"""The operator's page of ``cursorq ui``: what the functions of ``admin`` return, in a browser.

A thread follows the cursors topic (``collector``), requests are answered from its last snapshot (``app``),
and ``access`` decides who may ask. Templates and static files lie beside the modules. The package imports
``admin`` and the layers below; ``cli`` imports it.
"""

from spark_cursor_source.ui.app import create_app, serve
from spark_cursor_source.ui.collector import Collector
from spark_cursor_source.ui.settings import UiSettings

__all__ = ["Collector", "UiSettings", "create_app", "serve"]
