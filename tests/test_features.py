"""Optional libraries and features of Spark: what works without them, and what is said where they miss."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_cursor_source import _features
from spark_cursor_source._features import require_library, require_spark
from spark_cursor_source.errors import ExtraNotInstalled, UnsupportedSpark

ROOT = Path(__file__).resolve().parent.parent


def run_without(blocked: tuple[str, ...], code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process where some modules cannot be imported."""
    block = f"import sys; sys.modules.update(dict.fromkeys({blocked!r}))\n"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", block + code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


def cursorq_without(blocked: tuple[str, ...], *arguments: str) -> subprocess.CompletedProcess[str]:
    code = f"from spark_cursor_source.cli import main; sys.exit(main({list(arguments)!r}))"
    return run_without(blocked, code)


@pytest.mark.parametrize(
    ("library", "arguments", "told"),
    [
        ("pyspark", ["demo"], "cursorq demo needs pyspark, which is not installed. Run: pip install "),
        ("pandas", ["demo"], "cursorq demo needs pandas, which is not installed. Run: pip install "),
        ("typer", ["stats"], "cursorq needs typer, which is not installed. Run: pip install "),
        (
            "fastavro",
            ["tail", "orders", "--avro-schema", "order.avsc"],
            "Avro needs fastavro, which is not installed. Run: pip install ",
        ),
        ("rich", ["demo"], "cursorq demo needs rich, which is not installed. Run: pip install "),
        (
            "pyspark",
            ["broker"],
            "the embedded broker needs pyspark, which is not installed. Run: pip install ",
        ),
    ],
)
def test_a_command_without_its_extra_says_in_one_line_what_to_install(
    library: str, arguments: list[str], told: str
) -> None:
    done = cursorq_without((library,), *arguments)
    extra = _features.EXTRAS[library]
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"cursorq: {told}'spark-cursor-source[{extra}]'\n"


def test_the_command_needs_no_spark_where_its_work_needs_none(tmp_path: Path) -> None:
    blocked = ("pyspark", "py4j", "pandas", "rich")
    done = cursorq_without(blocked, "init", str(tmp_path / "new"))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_tracker_starts_without_any_extra() -> None:
    blocked = ("typer", "rich", "pyspark", "py4j", "pandas")
    done = cursorq_without(blocked, "tracker", "no-file.toml")
    assert done.returncode == 2
    assert "cursorq tracker: error: no-file.toml cannot be read" in done.stderr


@pytest.mark.parametrize("library", ["pyspark", "pandas"])
def test_a_name_for_spark_without_its_library_is_an_import_error_that_says_what_to_install(
    library: str,
) -> None:
    done = run_without((library,), "import spark_cursor_source as s; s.Release; s.register")
    error, _, told = done.stderr.splitlines()[-1].partition(": ")
    assert error.endswith(".ExtraNotInstalled")
    assert told == (
        f"spark_cursor_source on Spark needs {library}, which is not installed. "
        "Run: pip install 'spark-cursor-source[spark]'"
    )
    assert issubclass(ExtraNotInstalled, ImportError)


# As Spark 4.1 is.
WITHOUT_ADMISSION = "import pyspark.sql.streaming.datasource as d; del d.SupportsTriggerAvailableNow\n"


def test_a_spark_that_lacks_a_feature_is_refused_with_the_versions_that_have_it() -> None:
    done = run_without((), WITHOUT_ADMISSION + "import spark_cursor_source as s; s.AckSink")
    told = done.stderr.splitlines()[-1]
    assert ".UnsupportedSpark: pyspark 4." in told
    assert "lacks admission control of Python sources. Use Apache Spark 4.2 or 4.3" in told
    assert issubclass(UnsupportedSpark, ImportError)


def test_sparks_search_for_formats_goes_on_where_a_feature_is_missing_and_the_format_says_why() -> None:
    code = (
        "import pyspark_cursorq\n"
        "from pyspark import cloudpickle\n"
        "source = cloudpickle.loads(cloudpickle.dumps(pyspark_cursorq.DefaultSource))\n"
        "print(source.name())\n"
        "source({})"
    )
    done = run_without((), WITHOUT_ADMISSION + code)
    assert done.stdout == "cursorq\n"
    assert "lacks admission control of Python sources. Use Apache Spark" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "name", ["pyspark.nowhere:f", "pyspark.sql:Nothing", "pyspark.sql:DataFrame.nothing"]
)
def test_a_feature_may_miss_its_module_its_class_or_its_method(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_features, "SPARK_FEATURES", {"a thing": name, "another": "pyspark.sql:DataFrame"})
    with pytest.raises(UnsupportedSpark, match=r"^pyspark [\d.]+ lacks a thing\. Use"):
        require_spark.__wrapped__()


def test_the_installed_spark_has_every_feature() -> None:
    require_spark()
    require_library("pyspark", what="this test")


def test_a_broken_pyspark_is_not_taken_for_an_old_one() -> None:
    done = run_without(("py4j",), "import spark_cursor_source as s; s.register")
    assert "UnsupportedSpark" not in done.stderr
    assert "py4j" in done.stderr.splitlines()[-1]
