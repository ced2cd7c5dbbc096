"""The least that a Python source can do: rows that are already there, for each byte of a file one."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from tests.benchmarks.common import Bench


class PlainSource(DataSource):
    """Data source ``plain``: an append to the file in ``path`` is a message."""

    @classmethod
    def name(cls) -> str:
        return "plain"

    def schema(self) -> str:
        return "value binary"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return PlainReader(self.options["path"])


class Rows(InputPartition):
    """The numbers of the rows of a task."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__(None)
        self.start, self.end = start, end


class PlainReader(DataSourceStreamReader):
    """Reader whose offset is the size of the file. It does no other work."""

    def __init__(self, path: str) -> None:
        self._path = path

    def initialOffset(self) -> dict[str, int]:
        return {"size": 0}

    def latestOffset(self, *_: object) -> dict[str, int]:
        return {"size": os.path.getsize(self._path)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Rows]:
        return [Rows(start["size"], end["size"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Rows)
        numbers = range(partition.start, partition.end)
        values = pa.array([b"lone %d" % number for number in numbers], pa.binary())
        yield pa.RecordBatch.from_arrays([values], names=["value"])


def plain_stream(spark: SparkSession, here: Bench) -> DataFrame:
    """The messages of a new file, of which there is one."""
    path = here.scratch / f"plain-{uuid.uuid4().hex[:8]}"
    path.write_bytes(b"x")
    return spark.readStream.format("plain").option("path", str(path)).load()


def start_plain(here: Bench, spark: SparkSession) -> StreamingQuery:
    """Start an idle query of a new file with one message."""
    return (
        plain_stream(spark, here)
        .writeStream.format("noop")
        .option("checkpointLocation", here.checkpoint())
        .start()
    )
