"""Secrets in options reach the broker and nobody else."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import spark_cursor_source as cursorq
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.range_reader import RangeReader
from tests.conftest import READY_S
from tests.e2e.processes import TAG, pids_with_tag
from tests.spark.harness import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.broker]

RIGHT, WRONG, UNUSED = "the-right-pa55word", "a-wrong-pa55word", "an-unused-pa55word"
OF_KEY = "MIIEvQIBADANBgkqhkiG9w0canary"  # as in PEM
SECRETS = (RIGHT.encode(), WRONG.encode(), UNUSED.encode(), OF_KEY.encode())


def test_secrets_appear_in_no_log_error_repr_checkpoint_marker_or_event_log(tmp_path: Path) -> None:
    # A process of its own, so that all that its JVM and its Python processes write is at hand.
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    secured = {
        "auto.create.topics.enable": False,
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": (
            f'{module} required username="us" password="{RIGHT}" user_us="{RIGHT}";'
        ),
    }
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "us",
        "sasl.password": RIGHT,
    }
    with EmbeddedKafka(properties=secured, client_config=login, ready_timeout_s=READY_S) as broker:
        config = {"bootstrap.servers": broker.bootstrap_servers, **login}
        topics = ClusterAdmin(config)
        topics.create({"queue": (1, {})})
        producer = Producer(config)
        for number in range(4):
            producer.produce("queue", b"%d" % number)
        assert producer.flush(30) == 0
        arguments = [broker.bootstrap_servers, "queue", str(tmp_path), RIGHT, WRONG, UNUSED, OF_KEY]
        said = tmp_path / "said"
        with said.open("wb") as output:
            life = subprocess.run(
                [sys.executable, "-m", "tests.spark.secret_life", *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=Path(__file__).resolve().parents[2],
                env={**os.environ, TAG: str(tmp_path)},
                timeout=380,
                check=False,
            )
        # Its JVM outlives it by a moment, and deletes files.
        wait_until(lambda: not pids_with_tag(str(tmp_path)), "all of it has ended")
        text = said.read_text(errors="replace")
        assert life.returncode == 0, text[-5000:]
        assert "all done" in text
        # It did say all that it should: what is not there could not be seen.
        for wanted in (
            "sasl.password",
            "RuntimeError: the sink fails",
            "sasl.pasword",
            "cursorq-tracker",
            "pages of the UI",
        ):
            assert wanted in text
        for shown in ("eventlog*/events_*", "ui-*"):
            assert any(b"kafka.ssl.key.pem" in path.read_bytes() for path in tmp_path.glob(shown)), shown
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert len(files) > 20
        for path in files:
            content = path.read_bytes()
            for secret in SECRETS:
                at = content.find(secret)
                assert at < 0, f"{path.relative_to(tmp_path)}: {content[max(0, at - 600) : at + 60]!r}"
        names = [name for name in topics.matching(".*") if not name.startswith("__consumer")]
        assert {"queue", "queue-s-DLQ", "__cursorq_markers", "__cursors"} <= set(names)
        for name in names:
            for record in records(config, topics, name):
                parts = [record.key(), record.value(), *(v for _, v in record.headers() or [])]
                for secret in SECRETS:
                    assert not any(secret in part for part in parts if part is not None), name


def records(config: dict[str, str], topics: ClusterAdmin, name: str) -> list:
    count = topics.describe([name])[name].partitions
    ends = topics.end_offsets([(name, number) for number in range(count)], committed=False)
    with closing(RangeReader(config, committed=False)) as reader:
        return list(reader.read(name, {number: (0, end) for (_, number), end in ends.items()}))


def test_plans_hide_keys_and_passphrases_in_a_thread_without_an_active_session(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    cursorq.register(spark)
    secret = {
        "kafka.ssl.key.pem": f"-----BEGIN PRIVATE KEY-----\n{OF_KEY}\n-----END PRIVATE KEY-----",
        "kafka.sasl.oauthbearer.assertion.private.key.passphrase": UNUSED,
    }
    frame = spark.readStream.format("rate").options(**secret).load()

    def print_plans() -> None:
        frame.explain(True)
        with pytest.raises(AnalysisException) as refused:
            frame.select("no such column")
        print(refused.value)

    with ThreadPoolExecutor(1) as thread:
        thread.submit(print_plans).result()
    told = "".join(capsys.readouterr())
    assert told.count("kafka.ssl.key.pem=*********(redacted)") > 2
    assert OF_KEY not in told
    assert UNUSED not in told
