"""The plain client where neither Spark nor the command's libraries are installed."""

from __future__ import annotations

import json

import pytest

from tests.client.conftest import Rig
from tests.test_features import run_without

pytestmark = pytest.mark.broker

WORK = """
from spark_cursor_source.admin import read_stats
from spark_cursor_source.client import Service, ServiceConfig
from spark_cursor_source.errors import CursorqError

import json
given = json.loads(sys.argv[1])
queue = Service(ServiceConfig(**given)).queue(subscription="s")
with queue.producer() as producer:
    producer.send(b"payload")
with queue.consumer() as consumer:
    message = consumer.receive(30_000)
    message.ack()
servers = {"bootstrap.servers": given["bootstrap_servers"]}
stats = read_stats(servers, markers_topic=given["marker_topic"], cursors_topic=given["cursors_topic"],
                   redeliveries_topic=given["redeliveries_topic"], group_id_prefix=given["group_id_prefix"])
assert "s" in stats.to_text()
print(message.payload.decode(), sorted(name for name in ("pyspark", "rich") if sys.modules.get(name)))
"""


def test_client_and_admin_work_without_spark_pandas_and_rich(rig: Rig) -> None:
    config = rig.control.config["bootstrap.servers"]
    given = {
        "bootstrap_servers": config,
        "message_topic": rig.topic,
        "marker_topic": rig.control.markers,
        "redeliveries_topic": rig.control.redeliveries,
        "cursors_topic": rig.control.cursors,
        **rig.control.groups,
    }
    done = run_without(("pyspark", "py4j", "pandas", "rich"), WORK, json.dumps(given))
    assert done.stdout == "payload []\n", done.stderr
    rig.all_acked(1)
