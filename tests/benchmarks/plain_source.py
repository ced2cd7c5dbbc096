"""The reader of ``kafka.log`` as a Spark source and nothing around it: no leases, no markers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.kafka.log import arrow_batches

_SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "timestampType INT, delivery_count INT"
)


class PlainSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "plain"

    def schema(self) -> str:
        return _SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _PlainReader(dict(self.options))


class _Piece(InputPartition):
    def __init__(self, piece: Slice) -> None:
        self.slice = piece


class _PlainReader(DataSourceStreamReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._topic = options["subscribe"]
        self._config = {"bootstrap.servers": options["kafka.bootstrap.servers"]}

    def _ends(self, low: bool) -> dict[str, int]:
        consumer = Consumer(self._config | {"group.id": "plain"})
        try:
            partitions = consumer.list_topics(self._topic, timeout=10).topics[self._topic].partitions
            ends = {
                str(partition): consumer.get_watermark_offsets(
                    TopicPartition(self._topic, partition), timeout=10
                )
                for partition in partitions
            }
        finally:
            consumer.close()
        return {partition: pair[0 if low else 1] for partition, pair in ends.items()}

    def initialOffset(self) -> dict[str, int]:
        return self._ends(low=True)

    def latestOffset(self) -> dict[str, int]:
        return self._ends(low=False)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[_Piece]:
        return [
            _Piece(
                Slice(
                    topic=self._topic,
                    partition=int(partition),
                    offsets=OffsetSet.of((start[partition], stop)),
                    delivery_count=1,
                )
            )
            for partition, stop in end.items()
            if stop > start[partition]
        ]

    def read(self, partition: _Piece) -> Iterator[Any]:
        return arrow_batches(
            self._config, [partition.slice], include_headers=False, queue_id=None, on_missing=lambda *_: None
        )
