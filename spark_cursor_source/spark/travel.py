"""Check of functions that Spark pickles to other processes."""

from __future__ import annotations

from collections.abc import Callable
from pickle import PicklingError
from typing import Any

from pyspark.cloudpickle import dumps
from pyspark.errors import PySparkException

from spark_cursor_source.errors import HandlerNotPicklable


def check_travels(function: Callable[..., Any]) -> None:
    """Refuses a function that cannot be pickled to executors.

    Raises:
        HandlerNotPicklable
    """
    try:
        dumps(function)  # type: ignore[no-untyped-call]  # pyspark does not annotate it
    except (AttributeError, PicklingError, PySparkException, RecursionError, TypeError, ValueError) as why:
        name = getattr(function, "__qualname__", type(function).__name__)
        raise HandlerNotPicklable(name, str(why)) from why
