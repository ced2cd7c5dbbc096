"""A Spark process whose query writes to PostgreSQL with the code of the documentation.

``python -m tests.e2e.database_app CONFIG``, with JSON (see ``tests.e2e.sink_apps``). The process ends with
its stdin, or where it is told to die. ``recipes`` are sections of docs/how-to/write-to-a-database.md, with
which each batch is written one after the other. ``die`` is ``amid`` (a transaction has ids and output and is
not committed) or ``committed`` (it is committed, and its task has not ended), with `` in `` and the recipe,
or ``acked`` (Spark has not committed the batch). It happens in the second batch. With ``rival``, a file, the
first task stands still before its first transaction until the file exists.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from pyspark.sql import DataFrame

import spark_cursor_source as cursorq
from spark_cursor_source.devkit.spark_session import local_session
from tests.docs.pages import ROOT, blocks
from tests.e2e.processes import die
from tests.e2e.sink_apps import stand_still

PAGE = ROOT / "docs" / "how-to" / "write-to-a-database.md"
ONE_ROW, ANY_OUTPUT = "one row", "any output"


def code_with(language: str, *parts: str) -> str:
    """The code of the page's blocks that contain one of the parts."""
    found = [
        one.code
        for one in blocks(PAGE)
        if one.language == language and any(part in one.code for part in parts)
    ]
    assert found
    return "\n".join(found)


def names_of(code: str, database: str, **given: Any) -> dict[str, Any]:
    """What the code defines, with the test's server for that of the example, and with the given names."""
    names: dict[str, Any] = {"__name__": "__main__"}  # Spark then sends the functions and not their names
    exec(compile(code, str(PAGE), "exec"), names)
    assert "DATABASE" in names
    names.update(DATABASE=database, **given)
    return names


def two_lines_of(row: Any) -> list[tuple[str, str]]:
    text = row.value.decode()
    return [(text, "first"), (text, "second")]


def writer_of(recipe: str, database: str) -> Callable[[Iterator[Any]], None]:
    """``save_rows`` of the documentation."""
    if recipe == ONE_ROW:
        names = names_of(code_with("python", "INSERT INTO orders"), database)
    else:
        names = names_of(code_with("python", "def lines_of"), database, lines_of=two_lines_of)
    written: Callable[[Iterator[Any]], None] = names["save_rows"]
    return written


@contextmanager
def transactions(tag: str, how: str | None, go: str | None) -> Iterator[None]:
    """Let the first transaction of this task die, or stand still before it starts."""
    real: Any = psycopg.Connection.transaction

    @contextmanager
    def prepared(self: Any) -> Iterator[Any]:
        psycopg.Connection.transaction = real  # type: ignore[method-assign]
        if go is not None and not Path(go).exists():
            stand_still(go)
        with real(self) as transaction:
            yield transaction
            if how == "amid":
                die(tag)
        if how == "committed":
            die(tag)

    psycopg.Connection.transaction = prepared  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        psycopg.Connection.transaction = real  # type: ignore[method-assign]


def main() -> None:
    config: dict[str, Any] = json.loads(sys.argv[1])
    writers = {recipe: writer_of(recipe, config["database"]) for recipe in config["recipes"]}
    tag, batches = config["tag"], 0
    step, _, dying = (config["die"] or "").partition(" in ")

    def save(batch: DataFrame, batch_id: int) -> None:
        nonlocal batches
        batches += 1
        go = config["rival"]  # the first batch of a shared query may be empty
        for recipe, save_rows in writers.items():
            how = step if batches == 2 and recipe == dying else None

            def prepared(rows: Iterator[Any], how: str | None = how, save_rows: Any = save_rows) -> None:
                with transactions(tag, how, go):
                    save_rows(rows)

            batch.foreachPartition(prepared)

    with local_session("cursorq database", Path.cwd()) as spark:
        spark.sparkContext.setLogLevel("ERROR")
        cursorq.register(spark)
        sink = cursorq.AckSink(save)

        def write(batch: DataFrame, batch_id: int) -> None:
            sink(batch, batch_id)
            print(f"batch {batch_id} is written", flush=True)
            if batches == 2 and step == "acked":
                die(tag)

        rows = spark.readStream.format("cursorq").options(**config["options"]).load()
        written = rows.writeStream.foreachBatch(write)
        written.option("checkpointLocation", config["checkpoint"]).start()
        sys.stdin.read()


if __name__ == "__main__":
    main()
