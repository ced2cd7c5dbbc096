"""Optional libraries and features of Spark. They are found by name; no version is compared."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from spark_cursor_source.errors import ExtraNotInstalled, UnsupportedSpark

#: libraries that the base installation does not have, and the extras that install them
EXTRAS = {
    "pyspark": "spark",
    "pandas": "spark",
    "rich": "cli",
    "typer": "cli",
    "starlette": "ui",
    "uvicorn": "ui",
    "jinja2": "ui",
    "aws_msk_iam_sasl_signer": "msk",
    "google.auth": "gcp",
    "prometheus_client": "metrics",
    "opentelemetry": "otel",
    "fastavro": "avro",
}

#: features that the library needs of Spark, each with a name that exists where the feature exists
SPARK_FEATURES = {
    "admission control of Python sources": "pyspark.sql.streaming.datasource:SupportsTriggerAvailableNow",
    "Arrow writers of Python sinks": "pyspark.sql.datasource:DataSourceStreamArrowWriter",
    "transformWithState in Python": "pyspark.sql.group:GroupedData.transformWithState",
}


def require_library(library: str, *, what: str) -> None:
    """Checks that an optional library is installed, and does not import it.

    ``what`` is the subject of the error: the command or the function that needs the library.

    Raises:
        ExtraNotInstalled: the error names the extra to install.
    """
    if not _is_installed(library):
        raise ExtraNotInstalled(what, library, EXTRAS[library])


def _is_installed(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except ModuleNotFoundError:  # the package around it is missing
        return False


@cache
def require_spark() -> None:
    """Checks that pyspark is installed and has all features that the library needs.

    This library does not use pandas. Spark's own ``mapInArrow`` and ``transformWithState`` refuse to run
    without it.

    Raises:
        ExtraNotInstalled: pyspark or pandas is not installed.
        UnsupportedSpark: the error names the features that are missing, and what has them.
    """
    for library in ("pyspark", "pandas"):
        require_library(library, what="spark_cursor_source on Spark")
    lacking = [feature for feature, name in SPARK_FEATURES.items() if not _exists(name)]
    if lacking:
        raise UnsupportedSpark(import_module("pyspark").__version__, ", ".join(lacking))


def _exists(name: str) -> bool:
    module, _, attributes = name.partition(":")
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name is None or not module.startswith(missing.name):
            raise  # a library that pyspark itself needs
        return False
    for attribute in attributes.split("."):
        found = getattr(found, attribute, None)
    return found is not None
