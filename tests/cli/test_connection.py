"""The connection of a verb: from the command line, the environment and a profile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_cursor_source.admin import stats as admin_stats
from spark_cursor_source.cli import main
from spark_cursor_source.cli.cluster import Cluster, cluster_of
from spark_cursor_source.errors import ProfileUnreadable, UnknownProfile
from spark_cursor_source.kafka.config import client_config

PROFILES = """
[profile.default]
bootstrap-servers = "local:9092"

[profile.prod]
bootstrap-servers = "prod:9092"
markers-topic = "markers"
kafka = { "security.protocol" = "SASL_SSL", "sasl.password" = "hunter2" }
"""


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the profiles, with a text that tests may replace."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tmp_path / "cursorq" / "config.toml"
    path.parent.mkdir()
    path.write_text(PROFILES)
    return path


def servers(cluster: Cluster) -> str:
    return cluster.kafka["bootstrap.servers"]


def test_without_anything_the_broker_is_the_one_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert dict(cluster_of({}).kafka) == {"bootstrap.servers": "localhost:9092"}
    assert dict(cluster_of({"config-file": "client.properties"}).kafka) == {
        "config.file": "client.properties"
    }


def test_the_command_line_beats_the_environment_which_beats_the_profile(
    profiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert servers(cluster_of({})) == "local:9092"
    prod = cluster_of({}, profile="prod")
    assert (servers(prod), prod.markers_topic, prod.cursors_topic) == ("prod:9092", "markers", "__cursors")
    monkeypatch.setenv("CURSORQ_KAFKA_SECURITY_PROTOCOL", "SSL")
    assert cluster_of({}, profile="prod").kafka["security.protocol"] == "SSL"
    told = cluster_of({"bootstrap-servers": "b:1"}, ["security.protocol=PLAINTEXT"], "prod")
    assert (servers(told), told.kafka["security.protocol"]) == ("b:1", "PLAINTEXT")


@pytest.fixture
def file(tmp_path: Path) -> str:
    """The path of a properties file with brokers."""
    path = tmp_path / "staging.properties"
    path.write_text("metadata.broker.list=staging:9092\nsecurity.protocol=SSL\n")
    return str(path)


def connection(cluster: Cluster) -> dict[str, str]:
    """Returns the brokers, the protocol and the user with which a client would be opened."""
    opened = client_config(cluster.kafka)
    names = ("bootstrap.servers", "security.protocol", "sasl.username")
    return {name: opened[name] for name in names if name in opened}


def test_what_a_file_of_the_command_line_or_the_environment_sets_beats_the_profile(
    profiles: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles.write_text(
        """
        [profile.default]
        bootstrap-servers = "local:9092"
        kafka = { "Security.Protocol" = "SASL_SSL", "sasl.username" = "me" }
        """
    )
    staging = {"bootstrap.servers": "staging:9092", "security.protocol": "SSL", "sasl.username": "me"}
    assert connection(cluster_of({"config-file": file})) == staging
    assert connection(cluster_of({}, [f"Config.File={file}"])) == staging
    told = cluster_of({"config-file": file, "bootstrap-servers": "b:1"}, ["security.protocol=PLAINTEXT"])
    assert connection(told) == staging | {"bootstrap.servers": "b:1", "security.protocol": "PLAINTEXT"}
    monkeypatch.setenv("CURSORQ_CONFIG_FILE", file)
    assert connection(cluster_of({})) == staging
    monkeypatch.setenv("CURSORQ_BOOTSTRAP_SERVERS", "of-environment:1")
    assert servers(cluster_of({})) == "of-environment:1"


def test_what_a_file_of_the_command_line_sets_beats_the_environment(
    profiles: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CURSORQ_BOOTSTRAP_SERVERS", "of-environment:1")
    monkeypatch.setenv("CURSORQ_KAFKA_SECURITY_PROTOCOL", "PLAINTEXT")
    monkeypatch.setenv("CURSORQ_CONFIG_FILE", "/of-environment")
    assert connection(cluster_of({"config-file": file})) == {
        "bootstrap.servers": "staging:9092",
        "security.protocol": "SSL",
    }


def test_the_brokers_of_the_profile_count_where_a_file_names_none(profiles: Path, tmp_path: Path) -> None:
    passwords = tmp_path / "passwords.properties"
    passwords.write_text("sasl.username=me\n")
    told = cluster_of({"config-file": str(passwords)}, profile="prod")
    assert connection(told) == {
        "bootstrap.servers": "prod:9092",
        "security.protocol": "SASL_SSL",
        "sasl.username": "me",
    }


def test_a_file_of_the_profile_is_for_what_the_profile_does_not_set(profiles: Path, file: str) -> None:
    profiles.write_text(f'[profile.default]\nbootstrap-servers = "local:9092"\nconfig-file = "{file}"\n')
    assert connection(cluster_of({})) == {"bootstrap.servers": "local:9092", "security.protocol": "SSL"}


def test_variables_and_flags_reach_a_verb(
    profiles: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The file does not exist, so no broker is asked. The error names the file that was chosen.
    monkeypatch.setenv("CURSORQ_CONFIG_FILE", "/of-environment")
    assert main(["stats"]) == 1
    assert "'/of-environment' cannot be read" in capsys.readouterr().err
    assert main(["stats", "--config-file", "/of-flag"]) == 1
    assert "'/of-flag' cannot be read" in capsys.readouterr().err
    monkeypatch.setenv("CURSORQ_PROFILE", "elsewhere")
    assert main(["stats"]) == 1
    assert "There is no profile 'elsewhere' in" in capsys.readouterr().err


def test_a_profile_that_is_not_there_is_an_error_that_lists_the_others(profiles: Path) -> None:
    with pytest.raises(UnknownProfile, match=r"no profile 'prd' in .*It has: default, prod\.$"):
        cluster_of({}, profile="prd")
    with pytest.raises(UnknownProfile, match="no profile '' in"):  # and not the default one
        cluster_of({}, profile="")
    profiles.unlink()
    with pytest.raises(UnknownProfile, match=r"Add a table \[profile.prd\]"):
        cluster_of({}, profile="prd")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[profile.default]\nsasl.password = "hunter2"', "has a key 'sasl'; the keys are bootstrap-servers"),
        ('[profile.default]\nkafka = "hunter2"', "kafka of [profile.default] is not a table"),
        ("[profile.default]\nmarkers-topic = 7", "markers-topic of [profile.default] is not text"),
        ('[profile.default]\nkafka = { "sasl.password" = hunter2 }', "it is not TOML (at line 2"),
        (
            '[prod]\nbootstrap-servers = "hunter2"',
            "it has 'prod', which is no profile such as [profile.prod]",
        ),
        ('profile = "hunter2"', "not tables such as [profile.prod]"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error_that_shows_no_value(
    profiles: Path, text: str | bytes, why: str
) -> None:
    profiles.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ProfileUnreadable) as raised:
        cluster_of({})
    assert why in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_no_secret_is_in_the_repr_of_a_cluster(profiles: Path) -> None:
    assert "hunter2" not in repr(cluster_of({}, ["ssl.key.password=hunter2"], "prod"))


def test_a_malformed_client_option_is_wrong_usage_and_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["stats", "--kafka", "hunter2"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "not of the form NAME=VALUE. Run 'cursorq stats --help'" in said
    assert "hunter2" not in said


@pytest.mark.parametrize("place", [0, 1])
def test_a_traceback_is_shown_with_debug_only(
    place: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["stats", "--config-file", "/no/file"]
    assert main(arguments) == 1
    said = capsys.readouterr().err
    assert said.startswith("cursorq: kafka.config.file '/no/file' cannot be read on host")
    assert len(said.splitlines()) == 1
    arguments.insert(place, "--debug")
    assert main(arguments) == 1
    assert "Traceback" in capsys.readouterr().err


def test_an_error_of_our_own_is_one_line_that_asks_for_a_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(admin_stats, "read_stats", lambda *_, **__: 1 / 0)
    assert main(["stats", "--bootstrap-servers", "127.0.0.1:1"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("cursorq: unexpected ZeroDivisionError")
    assert said.endswith("Run it again with --debug and report the traceback.\n")


def test_help_imports_neither_kafka_nor_arrow() -> None:
    code = (
        "import sys; from spark_cursor_source.cli import main; main(['--help']); "
        "print({'confluent_kafka', 'pyarrow', 'numpy', 'rich', 'pyspark'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_a_shell_completes_verbs_and_options() -> None:
    asked = {"_CURSORQ_COMPLETE": "complete_bash", "COMP_WORDS": "cursorq stats --to", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-m", "spark_cursor_source.cli"],
        env=os.environ | asked,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["--topic"]
