"""What is told before a query starts: the Python that Spark takes, and handlers that cannot travel."""

from __future__ import annotations

import sys
import threading
import venv
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

import spark_cursor_source as cursorq
from spark_cursor_source.errors import HandlerNotPicklable, PythonWithoutPackage, RefusedKafkaOption
from spark_cursor_source.spark.redaction import DEFAULT, OPTION, hide_secrets
from spark_cursor_source.spark.source import CursorqDataSource
from spark_cursor_source.spark.tracker import own_session
from spark_cursor_source.spark.worker_python import check_worker_python

OPTIONS = {"kafka.bootstrap.servers": "b:9092", "subscribe": "orders", "subscription": "billing"}


def session_of(python: str) -> SimpleNamespace:
    return SimpleNamespace(_sc=SimpleNamespace(pythonExec=python))


def test_a_python_without_the_package_is_named_with_the_one_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH")
    monkeypatch.chdir(tmp_path)
    venv.create(tmp_path / "bare", with_pip=False)
    for python in (str(tmp_path / "bare/bin/python"), str(tmp_path / "no-such-python")):
        with pytest.raises(PythonWithoutPackage, match=f"Set PYSPARK_PYTHON={sys.executable}") as refused:
            check_worker_python(session_of(python))  # type: ignore[arg-type]
        assert refused.value.python == python


def test_the_python_of_the_driver_is_good_and_a_session_of_connect_is_not_asked() -> None:
    check_worker_python(session_of(sys.executable))  # type: ignore[arg-type]
    check_worker_python(SimpleNamespace())  # type: ignore[arg-type]


def test_a_tracker_gets_a_session_of_its_own_where_spark_connect_has_only_clones() -> None:
    asked: list[str] = []
    conf = SimpleNamespace(get=asked.append)
    only_clones = SimpleNamespace(conf=conf, cloneSession=lambda: "clone", is_stopped=False)
    assert own_session(only_clones) == "clone"  # type: ignore[arg-type]
    assert asked, "a server knows only sessions that have asked for something"
    both = SimpleNamespace(newSession=lambda: "new", cloneSession=lambda: "clone", is_stopped=False)
    assert own_session(both) == "new"  # type: ignore[arg-type]


def test_a_handler_that_cannot_be_pickled_is_refused_when_the_sink_is_made() -> None:
    lock = threading.Lock()

    def handle(message: object) -> None:
        with lock:
            pass

    with pytest.raises(HandlerNotPicklable, match=r"handle cannot be sent to the executors: .*lock"):
        cursorq.AckSink.per_row(handle, OPTIONS)


@pytest.mark.parametrize(
    ("option", "told"), [("kafka.group.id", "subscription"), ("kafka.sasl.pasword", "Did you mean")]
)
def test_a_kafka_option_that_is_refused_is_refused_by_load(option: str, told: str) -> None:
    with pytest.raises(RefusedKafkaOption, match=told):
        CursorqDataSource({**OPTIONS, option: "x"}).schema()


@pytest.mark.spark
def test_spark_finds_the_format_without_register_where_the_package_is_installed(spark: SparkSession) -> None:
    fresh = spark.newSession()  # what another test has registered, it has not
    orders = fresh.readStream.format("cursorq").options(**OPTIONS).load()
    assert orders.isStreaming
    assert {"value", "delivery_count"} <= set(orders.columns)


class Conf:
    """The runtime configuration of a session."""

    def __init__(self) -> None:
        self.set_to: list[str] = []

    def get(self, name: str, default: str) -> str:
        assert name == OPTION
        return self.set_to[-1] if self.set_to else default

    def set(self, name: str, value: str) -> None:
        self.set_to.append(value)


def test_sparks_pattern_of_secrets_is_extended_once() -> None:
    conf = Conf()
    for _ in range(2):
        hide_secrets(SimpleNamespace(conf=conf))  # type: ignore[arg-type]
    (pattern,) = conf.set_to
    assert pattern.startswith(f"{DEFAULT}|")
