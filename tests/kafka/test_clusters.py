"""Clusters that ask for a certificate, and clusters that slow their clients down."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_cursor_source.core.marker import Release
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.devkit.runtime import find_java, find_runtime
from spark_cursor_source.errors import KafkaFailure
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.topics.markers import MarkerSender
from tests.conftest import READY_S
from tests.kafka.control_plane import PARTITIONS, Control, cell_of, offsets, read_all

pytestmark = pytest.mark.broker

PASSWORD = "of-the-key-store"


def certificate(directory: Path, name: str) -> tuple[Path, Path]:
    """A key store with a certificate for 127.0.0.1 that it has signed itself, and the certificate alone."""
    store, pem = directory / f"{name}.p12", directory / f"{name}.pem"
    keytool = str(Path(find_java()[0]).resolve().with_name("keytool"))
    kept = ["-alias", name, "-keystore", str(store), "-storepass", PASSWORD, "-storetype", "PKCS12"]
    made = ["-genkeypair", "-keyalg", "EC", "-dname", f"CN={name}", "-ext", "san=ip:127.0.0.1"]
    for command in ([*made, *kept], ["-exportcert", "-rfc", "-file", str(pem), *kept]):
        subprocess.run([keytool, *command], check=True, capture_output=True, timeout=60)
    return store, pem


def test_a_certificate_of_another_authority_is_named_as_the_cause(tmp_path: Path) -> None:
    store, right = certificate(tmp_path, "right")
    _, wrong = certificate(tmp_path, "wrong")
    properties = {
        "listener.security.protocol.map": "CLIENT:SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": store,
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": right,
    }
    config = {"security.protocol": "SSL", "log_level": "0"}
    with EmbeddedKafka(
        properties=properties,
        client_config=config | {"ssl.ca.location": str(right)},
        ready_timeout_s=READY_S,
    ) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        ClusterAdmin(servers | config | {"ssl.ca.location": str(right)}).create({"orders": (1, {})})
        with pytest.raises(KafkaFailure) as refused:
            ClusterAdmin(servers | config | {"ssl.ca.location": str(wrong)}, timeout_ms=6_000).describe(
                ["orders"]
            )
    assert "certificate verify failed" in str(refused.value)


def test_a_client_that_is_slowed_down_by_its_quota_is_slow_and_loses_nothing(
    mortal: EmbeddedKafka, make_control: Callable[[dict[str, str]], Control]
) -> None:
    # 180 kB of markers at 15 kB/s, measured over ten seconds; the answers come late, and all come.
    config = {"bootstrap.servers": mortal.bootstrap_servers, "client.id": "slowed-down"}
    control = make_control(config)
    set_quota(mortal, "slowed-down", "producer_byte_rate=15000,consumer_byte_rate=15000")
    throttled: list[object] = []
    config |= {"throttle_cb": throttled.append}
    sender, cell = MarkerSender(config, control.markers, PARTITIONS), cell_of(control.queue)
    for number in range(44):
        reason = f"{number:03} " + "x" * 490
        markers = [
            Release(cell=cell, offsets=offsets((n, n + 1)), delivery_count=1, reason=reason) for n in range(8)
        ]
        assert sender.send(markers) == 8
        sender.flush()
    assert throttled
    assert len(read_all(control.config, control.markers)) == 44 * 8
    sender.close()


def set_quota(broker: EmbeddedKafka, client_id: str, quota: str) -> None:
    """What ``kafka-configs.sh --alter --entity-type clients`` does."""
    runtime = find_runtime(lambda line: None)
    command = [runtime.java, "-cp", runtime.classpath, "kafka.admin.ConfigCommand"]
    where = ["--bootstrap-server", broker.bootstrap_servers, "--entity-type", "clients"]
    what = ["--entity-name", client_id, "--alter", "--add-config", quota]
    subprocess.run([*command, *where, *what], check=True, capture_output=True, timeout=120)
