"""Brokers that cannot be connected to are told of at once, and given up for an error within ten seconds."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from spark_cursor_source.admin.breaker import close_breaker
from spark_cursor_source.admin.redrive import redrive
from spark_cursor_source.admin.stats import read_stats
from spark_cursor_source.admin.subscriptions import Subscriptions
from spark_cursor_source.cli import main
from spark_cursor_source.client import Client, Service, ServiceConfig
from spark_cursor_source.consumer.planner import Planner
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import KafkaUnavailable
from spark_cursor_source.interop.planner import PlannerV1
from spark_cursor_source.kafka.admin_requests import AdminRequests
from spark_cursor_source.options.ack import AckOptions
from spark_cursor_source.options.publish import EnqueueOptions
from spark_cursor_source.options.source import SourceOptions
from spark_cursor_source.options.tracker import TrackerOptions
from spark_cursor_source.spark.ack_writer import AckWriter
from spark_cursor_source.spark.actions import run_action
from spark_cursor_source.spark.message_writer import EnqueueWriter
from spark_cursor_source.tracker.planner import TrackerPlanner
from tests.beside import beside

pytestmark = pytest.mark.broker

TLS = {"security.protocol": "SSL"}
SOON_MS = 4_000  #: a busy machine needs some seconds to find out why


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


@contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of a server that treats each connection like this."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)

        def accept(ended: threading.Event) -> None:
            while not ended.is_set():
                with suppress(TimeoutError):
                    serve(server.accept()[0])

        with beside(accept):
            yield f"127.0.0.1:{server.getsockname()[1]}"


def speak_tls(connection: socket.socket) -> None:
    with suppress(OSError), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).wrap_socket(connection, server_side=True):
        pass
    connection.close()


def meet(servers: str, **config: str) -> str:
    """The error of a first contact."""
    with pytest.raises(KafkaUnavailable) as failed:
        AdminRequests({"bootstrap.servers": servers, **config}).meet(within_ms=SOON_MS)
    assert failed.value.waited_ms < SOON_MS + 30_000
    assert "Check that the brokers of kafka.bootstrap.servers run" in str(failed.value)
    return failed.value.last


def test_a_port_where_nobody_listens_is_named_in_the_error_and_logged_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    servers = closed_port()
    with caplog.at_level(logging.WARNING):
        began = time.time()
        assert f"{servers} failed: Connection refused" in meet(servers)
    (said,) = [record for record in caplog.records if "brokers_unreachable" in record.message]
    assert "Connection refused" in said.message
    assert said.created - began < SOON_MS / 1000


def test_a_host_that_does_not_resolve_is_named() -> None:
    assert "Failed to resolve 'no-such-host.invalid:9092'" in meet("no-such-host.invalid:9092")


def test_tls_to_a_plaintext_listener_says_so(broker: EmbeddedKafka) -> None:
    assert "connecting to a PLAINTEXT broker listener?" in meet(broker.bootstrap_servers, **TLS)


def test_plaintext_to_a_tls_listener_says_so() -> None:
    with listening(speak_tls) as servers:
        assert "as where a listener speaks TLS" in meet(servers)


def test_brokers_that_accept_and_do_not_answer_yet_are_waited_for() -> None:
    held: list[socket.socket] = []
    with listening(held.append) as servers:
        # One that refuses is among them: the other may still answer.
        AdminRequests({"bootstrap.servers": f"{closed_port()},{servers}"}).meet(within_ms=SOON_MS)
    for connection in held:
        connection.close()
    assert held


def test_brokers_that_answer_are_met_at_once(broker: EmbeddedKafka) -> None:
    AdminRequests({"bootstrap.servers": broker.bootstrap_servers}).meet(within_ms=60_000)


def test_everything_that_starts_gives_up_within_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    servers = closed_port()
    kafka = {"bootstrap.servers": servers}
    source = {"kafka.bootstrap.servers": servers, "subscribe": "q", "subscription": "s"}
    tracker = TrackerOptions.parse({"kafka.bootstrap.servers": servers, "checkpointLocation": "/nowhere"})
    client = Client({"kafka.bootstrap.servers": servers})
    service = Service(ServiceConfig(bootstrap_servers=servers, message_topic="q"))
    producer = service.queue("q").producer()
    acks = AckOptions.parse({"kafka.bootstrap.servers": servers, "subscription": "s"})
    enqueue = EnqueueOptions.parse({"kafka.bootstrap.servers": servers, "topic": "q"})
    message = StructType([StructField("value", StringType())])
    starts: list[Callable[[], object]] = [
        lambda: Planner(SourceOptions.parse(source)),
        lambda: PlannerV1(SourceOptions.parse({**source, "markerFormat": "v1"})),
        lambda: TrackerPlanner(tracker),
        lambda: client.publish("q", b""),
        lambda: client.fetch_cursor("c", "q", 0),
        lambda: service.queue("q").consumer(),
        lambda: producer.send(b""),
        lambda: producer.send_async(b"", on_ack=lambda outcome: None),
        lambda: run_action(None, acks),  # type: ignore[arg-type]  # no DataFrame is looked at before
        lambda: AckWriter(acks, ["topic", "partition", "offset"], overwrite=False),
        lambda: EnqueueWriter(enqueue, message, overwrite=False),
        lambda: redrive(kafka, "q-s-DLQ"),
        lambda: close_breaker(kafka, "s"),
        lambda: read_stats(kafka),
        lambda: Subscriptions(kafka),
    ]

    def time_to_the_error(start: Callable[[], object]) -> int:
        with pytest.raises(KafkaUnavailable, match="Connection refused") as failed:
            start()
        return failed.value.waited_ms

    with ThreadPoolExecutor(len(starts) + 1) as pool:
        command = pool.submit(main, ["stats", "--bootstrap-servers", servers])
        assert max(pool.map(time_to_the_error, starts)) < 10_000
        assert command.result() == 1
    assert "Connection refused" in capsys.readouterr().err
    client.close()
    producer.close()
