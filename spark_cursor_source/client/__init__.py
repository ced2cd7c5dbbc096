"""Client for services without Spark: queues (``client.queues``) and streams (``client.streams``).

Applications import the public names from this module. Both packages build on ``consumer`` and ``topics``,
and need no pyspark.
"""

from spark_cursor_source.client.queues.consumer import QueueConsumer
from spark_cursor_source.client.queues.message import QueueMessage
from spark_cursor_source.client.queues.producer import QueueProducer
from spark_cursor_source.client.queues.service import Queue, Service
from spark_cursor_source.client.streams.client import Client
from spark_cursor_source.client.streams.positions import Message, StartAt, StopAt
from spark_cursor_source.client.streams.receipts import Ack, AckPolicy, Partitioner, RoundRobin, by_key
from spark_cursor_source.options.service import ServiceConfig

__all__ = [
    "Ack",
    "AckPolicy",
    "Client",
    "Message",
    "Partitioner",
    "Queue",
    "QueueConsumer",
    "QueueMessage",
    "QueueProducer",
    "RoundRobin",
    "Service",
    "ServiceConfig",
    "StartAt",
    "StopAt",
    "by_key",
]
