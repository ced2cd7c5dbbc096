"""The plain client: streams, publishing, subscribing, cursors, queues, for services that are not Spark."""

from spark_cursor_source.client.client import Client
from spark_cursor_source.client.message import QueueMessage
from spark_cursor_source.client.queue_consumer import QueueConsumer
from spark_cursor_source.client.queue_producer import QueueProducer
from spark_cursor_source.client.service import Queue, Service
from spark_cursor_source.core.publish import Ack, AckPolicy, Partitioner, RoundRobin, by_key
from spark_cursor_source.core.subscribe import Message, StartAt, StopAt
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
