"""A standalone cluster of a master and two workers, whose Python has all libraries but not this package."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyspark
import pytest

from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.devkit.spark_session import SHORT_LIVED
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.topics.cursors import CursorTable
from tests.e2e.harness import ROOT
from tests.e2e.test_jobs import DEFAULTS, NEGATIVE, ORDERS, SUBMIT, Jobs
from tests.test_starter import build_wheel

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SPARK_CLASS = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
DAEMON = {
    "SPARK_DAEMON_MEMORY": "128m",
    "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED,
    "SPARK_PUBLIC_DNS": "127.0.0.1",
}


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def make_environment(directory: Path) -> Path:
    """A virtual environment with all that this process has installed, except this package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    (site_packages,) = directory.glob("lib/python*/site-packages")
    # A path in a .pth file does not bring the .pth files there, such as that of an editable installation.
    (site_packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"])
    python = directory / "bin" / "python"
    look = (
        "import confluent_kafka, importlib.util as u, sys; sys.exit(bool(u.find_spec('spark_cursor_source')))"
    )
    subprocess.run([python, "-c", look], check=True, env={}, cwd="/")
    return python


class StandaloneCluster:
    """The processes of the cluster, and how a job is submitted to it."""

    def __init__(self, jobs: Jobs, directory: Path) -> None:
        self._jobs, self._directory, self._port = jobs, directory, free_port()

    def start(self) -> None:
        listen = ["--host", "127.0.0.1", "--webui-port", "0"]
        master = [SPARK_CLASS, "org.apache.spark.deploy.master.Master", *listen, "--port", str(self._port)]
        self._jobs.run("master", master, DAEMON)
        worker = [
            SPARK_CLASS,
            "org.apache.spark.deploy.worker.Worker",
            *listen,
            "--cores",
            "2",
            "--memory",
            "2g",
        ]
        for name in ("worker-1", "worker-2"):
            work = ["--work-dir", str(self._directory / name), self.url]
            self._jobs.run(name, [*worker, *work], DAEMON)
        # The master refuses a worker that comes before its election, which tries again later.
        registered = "Successfully registered with master"
        for name in ("worker-1", "worker-2"):
            self._jobs.until(lambda name=name: registered in self._jobs.log(name), f"{name} is registered")

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def submit(self, job: str, conf: str, *more: str, settings: dict[str, str | None], cores: int) -> None:
        modest = {
            "spark.cores.max": str(cores),
            "spark.executor.cores": "1",
            "spark.executor.memory": "512m",
            # No task before each executor is there: only a task gives its executor the files.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
            "spark.executor.extraJavaOptions": SHORT_LIVED,
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": SHORT_LIVED,
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
        }
        options = [word for name, value in modest.items() for word in ("--conf", f"{name}={value}")]
        script = str(ROOT / "jobs" / job)
        command = [SUBMIT, "--master", self.url, *options, *DEFAULTS, *more, script, conf]
        self._jobs.run(job, command, settings)

    def executors(self, name: str) -> list[str]:
        """The workers on which a file or directory of this name was given to an executor."""
        return sorted({path.parts[-4] for path in self._directory.glob(f"worker-*/app-*/*/{name}")})


@pytest.fixture
def jobs(broker: EmbeddedKafka, tmp_path: Path) -> Iterator[Jobs]:
    made = Jobs(broker.bootstrap_servers, tmp_path)
    yield made
    made.close()


def test_tracker_and_consumer_run_on_a_cluster_by_files_and_by_an_archive(
    jobs: Jobs, broker: EmbeddedKafka, tmp_path: Path
) -> None:
    # tracker:  the wheel by --py-files, and on PYTHONPATH of the driver; dependencies on every machine
    # consumer: a whole environment by --archives; the driver is started beside the same environment
    cluster = StandaloneCluster(jobs, tmp_path)
    cluster.start()
    python = make_environment(tmp_path / "python")
    (tmp_path / "build").mkdir()
    wheel = shutil.copy(build_wheel(tmp_path / "build"), tmp_path / "cursorq.zip")
    environment = tmp_path / "environment"
    make_environment(environment)
    (site_packages,) = environment.glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(site_packages)
    archive = shutil.make_archive(str(environment), "gztar", root_dir=environment)

    produce = [
        sys.executable,
        str(ROOT / "jobs" / "produce.py"),
        "--bootstrap-servers",
        broker.bootstrap_servers,
    ]
    sent = jobs.run(
        "produce", [*produce, "--topic", jobs.topic, "--messages", str(ORDERS), "--partitions", "4"]
    )
    clean = {"PYTHONPATH": None, "PYSPARK_DRIVER_PYTHON": None}
    cluster.submit(
        "tracker.py",
        jobs.conf("tracker.toml"),
        *("--py-files", str(wheel)),
        settings={**clean, "PYSPARK_PYTHON": str(python), "PYTHONPATH": str(wheel)},
        cores=1,
    )
    jobs.until(lambda: sent.poll() == 0, "the producer ends")
    cluster.submit(
        "consume.py",
        jobs.conf("consumer.toml"),
        *("--archives", f"{archive}#environment"),
        settings={**clean, "PYSPARK_PYTHON": "./environment/bin/python"},
        cores=2,
    )

    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    topics = ClusterAdmin(kafka)
    jobs.until(lambda: topics.existing([jobs.cursors_topic]), "the control topics are made")
    with closing(CursorTable(kafka, jobs.cursors_topic)) as tail:

        def settled() -> tuple[int, int]:
            tail.refresh()
            totals = [one.totals for one in tail.of(subscription="billing", topic=jobs.topic).values()]
            return sum(one.acked for one in totals), sum(one.dead_lettered for one in totals)

        jobs.until(lambda: settled() == (ORDERS - NEGATIVE, NEGATIVE), "every order is settled")
    assert cluster.executors("environment") == ["worker-1", "worker-2"]
    assert len(cluster.executors("cursorq.zip")) == 1
