"""The documentation's code for PostgreSQL on a real server: each message is in the tables once."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from spark_cursor_source.devkit.process import free_port
from tests.e2e.database_app import ANY_OUTPUT, ONE_ROW, code_with, names_of
from tests.e2e.harness import wait_until
from tests.e2e.sink_apps import EACH_ONCE, MESSAGES, Apps, queue_with_tracker
from tests.kafka.control_plane import Control

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]

TWO_LINES_EACH = Counter({(text, line): 1 for text in EACH_ONCE for line in ("first", "second")})


def program(name: str) -> str:
    """A program of PostgreSQL; Debian has most of them beside the server and not on the path."""
    server = shutil.which("postgres")
    if server is None:
        pytest.skip("no PostgreSQL here")
    return str(Path(server).resolve().parent / name)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A PostgreSQL server on a loopback port; yields what a client needs to connect."""
    initdb, postgres = program("initdb"), program("postgres")
    # The server does not run as root.
    user = "postgres" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="postgres-") as directory:
        data = Path(directory) / "data"
        if user is not None:
            shutil.chown(directory, user)
        made = [initdb, "--pgdata", str(data), "--auth", "trust", "--username", "orders", "--no-sync"]
        subprocess.run(made, check=True, user=user, capture_output=True, cwd=directory)
        port = free_port()
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": port,
            "unix_socket_directories": "",
            "fsync": "off",
        }
        command = [postgres, "-D", str(data), *(f"--{name}={value}" for name, value in settings.items())]
        with subprocess.Popen(command, user=user, cwd=directory, stderr=subprocess.DEVNULL) as process:
            try:
                yield f"host=127.0.0.1 port={port} user=orders"
            finally:
                process.send_signal(signal.SIGINT)  # ends the sessions, too


@pytest.fixture
def database(server: str) -> str:
    """A new database with the tables of the documentation; returns what a client needs to connect."""

    def answers() -> bool:
        try:
            psycopg.connect(f"{server} dbname=postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    wait_until(answers, "PostgreSQL answers")
    with psycopg.connect(f"{server} dbname=postgres", autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS sales WITH (FORCE)")
        connection.execute("CREATE DATABASE sales")
    made = f"{server} dbname=sales"
    with psycopg.connect(made) as connection:
        connection.execute(code_with("sql", "CREATE TABLE").encode())
    return made


@pytest.fixture
def control(config: dict[str, str], tmp_path: Path) -> Iterator[Control]:
    with queue_with_tracker(config, tmp_path) as made:
        yield made


def select(database: str, columns: str) -> Counter[tuple[str, ...]]:
    """How often each row is there; ``columns`` is what follows SELECT."""
    with psycopg.connect(database) as connection:
        return Counter(connection.execute(f"SELECT {columns}".encode()).fetchall())


def assert_each_once(database: str, recipe: str) -> None:
    if recipe == ONE_ROW:
        assert select(database, "body FROM orders") == Counter((text,) for text in EACH_ONCE)
    else:
        assert select(database, "order_id, line FROM lines") == TWO_LINES_EACH


def remove_old_ids(database: str, control: Control) -> int:
    """Run the removal of the documentation. Returns how many ids it removed."""
    code = code_with("python", "def remove_old_ids")
    names = names_of(code, database, KAFKA=control.config)
    read = names["read_stats"]
    names["read_stats"] = lambda kafka, **given: read(
        kafka,
        **control.topics,
        redeliveries_topic=control.redeliveries,
        **control.groups,
        **given,
    )
    removed: int = names["remove_old_ids"](control.queue, "s")
    return removed


def test_each_message_is_written_once_whatever_step_its_process_dies_at(
    control: Control, database: str, tmp_path: Path
) -> None:
    # Each batch is written with one recipe, then with the other, and its process dies in one of them.
    # The deaths in the second one come after the commits of the first one.
    own = {"database": database, "recipes": [ONE_ROW, ANY_OUTPUT]}
    apps = Apps("tests.e2e.database_app", control, tmp_path, **own)
    for step in (f"amid in {ONE_ROW}", f"amid in {ANY_OUTPUT}", f"committed in {ANY_OUTPUT}", "acked"):
        apps.die(step)
    with apps.running() as process:
        came_again = apps.until_acked(process)
    assert_each_once(database, ONE_ROW)
    assert_each_once(database, ANY_OUTPUT)
    assert came_again > 0


def test_a_task_that_stands_still_while_its_ids_are_removed_writes_nothing(
    control: Control, database: str, tmp_path: Path
) -> None:
    # first:  task and planner stand still                                          writes
    # second:                               writes all, acks; the ids are removed
    own = {"database": database, "recipes": [ANY_OUTPUT]}
    apps = Apps("tests.e2e.database_app", control, tmp_path, subscription_type="shared", **own)
    with apps.overtaken({}, go=tmp_path / "go") as came_again:
        assert remove_old_ids(database, control) == MESSAGES
        assert select(database, "* FROM written") == Counter()
    assert_each_once(database, ANY_OUTPUT)
    assert came_again > 0
