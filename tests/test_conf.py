"""The files in ``conf/``: each option named, with its default, in words that the library takes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from spark_cursor_source.kafka.config_file import read_properties_file
from spark_cursor_source.kafka.control_topics import MARKERS
from spark_cursor_source.options.source import SOURCE_OPTIONS, SourceOptions
from spark_cursor_source.options.tracker import TRACKER_OPTIONS, TrackerOptions
from spark_cursor_source.spark import redaction
from spark_cursor_source.spark.tracker import STATE_CONF

CONF = Path(__file__).resolve().parent.parent / "conf"
_COMMENTED_OPTION = re.compile(r"^# (?=[\"a-zA-Z.]+ = |\[)", re.MULTILINE)


def text(name: str) -> str:
    return (CONF / name).read_text(encoding="utf-8")


def active(name: str) -> dict[str, Any]:
    return tomllib.loads(text(name))


def commented(name: str) -> list[str]:
    """The lines that are options when their comment sign is taken away, tables among them."""
    lines = text(name).splitlines()
    return [line[2:] for line in lines if _COMMENTED_OPTION.match(line)]


def names(table: dict[str, Any]) -> set[str]:
    return table.keys() - {"kafka"}


def test_the_trackers_file_says_what_a_tracker_does_without_it() -> None:
    given = active("tracker.toml")
    required = {name: given[name] for name in ("kafka", "checkpointLocation")}
    assert TrackerOptions.parse(given) == TrackerOptions.parse(required)


def test_the_file_for_kafka_mq_go_is_taken() -> None:
    reappend = TrackerOptions.parse(active("tracker-kafka-mq-go.toml")).reappend
    assert reappend is not None
    assert (reappend.queue_topic, reappend.max_deliveries) == ("jobs", None)


def test_the_file_for_kafka_mq_go_turned_to_kmq_delivers_as_often_as_kmq() -> None:
    given = active("tracker-kafka-mq-go.toml") | {"markerFormat": "kmq"}
    reappend = TrackerOptions.parse(given).reappend
    assert reappend is not None
    assert (reappend.max_deliveries, reappend.dead_letter_topic) == (4, "jobs__undelivered")


def test_the_consumers_file_says_what_a_source_does_without_it() -> None:
    given = active("consumer.toml")["source"]
    required = {name: given[name] for name in ("kafka.bootstrap.servers", "subscribe", "subscription")}
    assert SourceOptions.parse(given) == SourceOptions.parse(required)


def test_the_trackers_file_names_every_option() -> None:
    named = set(re.findall(r"^(?:# )?([A-Za-z]+) = ", text("tracker.toml"), re.MULTILINE))
    assert named == {option for option in TRACKER_OPTIONS if "." not in option}
    for part in ("min", "max", "multiplier"):
        assert f"{part} = " in text("tracker.toml")


def test_the_consumers_file_names_every_option() -> None:
    named = set(re.findall(r"^(?:# )?([A-Za-z]+) = ", text("consumer.toml"), re.MULTILINE))
    assert named == {*SOURCE_OPTIONS, "checkpointLocation"}


@pytest.mark.parametrize("line", [line for line in commented("consumer.toml") if "=" in line])
def test_what_is_commented_out_in_the_consumers_file_is_taken_when_it_is_not(line: str) -> None:
    given = active("consumer.toml")["source"]
    option = tomllib.loads(line)
    if option.keys() & {"subscribePattern", "assign"}:
        del given["subscribe"]
    if option.keys() & {"startingTimestamp", "startingOffsetsByTimestamp"}:
        del given["startingOffsets"]
    SourceOptions.parse(given | option)


def test_what_is_commented_out_in_the_trackers_file_is_taken_when_it_is_not() -> None:
    lines = commented("tracker.toml")
    subscriptions = lines[lines.index("[subscriptions.billing]") :]
    override = tomllib.loads("\n".join(subscriptions))
    alternatives = [tomllib.loads(line) for line in lines[: lines.index("[subscriptions.billing]")]]
    for option in [*alternatives, override]:
        given = active("tracker.toml")
        changed = {"kafka": {**given["kafka"], **option}} if "config.file" in option else option
        if "queueTopic" in option:
            changed = {**option, "redelivery": "reappend"}
        TrackerOptions.parse(given | changed)
    assert TrackerOptions.parse(active("tracker.toml") | override).policy_for("billing").max_deliveries == 3
    assert len(alternatives) >= 5


def test_the_properties_of_the_markers_topic_are_those_that_it_is_made_with() -> None:
    assert read_properties_file(str(CONF / "markers-topic.properties")) == {
        name: str(value) for name, value in MARKERS.settings.items()
    }


def test_the_properties_of_spark_are_those_that_a_tracker_sets_for_itself() -> None:
    lines = [line.split(None, 1) for line in text("spark-defaults.conf").splitlines()]
    settings = {line[0]: line[1].strip() for line in lines if line and not line[0].startswith("#")}
    assert settings.items() >= STATE_CONF.items()
    assert settings[redaction.OPTION] == f"{redaction.DEFAULT}|{redaction.SECRETS}"


def test_the_pipeline_has_spark_hide_secrets() -> None:
    # A declarative pipeline may not set it itself.
    spec = (CONF.parent / "jobs" / "pipeline" / "spark-pipeline.yml").read_text(encoding="utf-8")
    assert f'{redaction.OPTION}: "{redaction.DEFAULT}|{redaction.SECRETS}"' in spec


def test_the_log_of_spark_is_quiet_while_nothing_happens() -> None:
    loggers = dict(re.findall(r"^logger\.(\w+)\.name = (.+)$", text("log4j2.properties"), re.MULTILINE))
    levels = dict(re.findall(r"^logger\.(\w+)\.level = (.+)$", text("log4j2.properties"), re.MULTILINE))
    assert loggers.keys() == levels.keys()
    assert re.search(r"^rootLogger\.level = warn$", text("log4j2.properties"), re.MULTILINE)


def test_the_asset_bundle_names_files_that_exist_and_the_settings_of_spark_defaults() -> None:
    path = CONF.parent / "jobs" / "databricks" / "databricks.yml"
    bundle = yaml.safe_load(path.read_text(encoding="utf-8"))
    defaults = read_properties_file(str(CONF / "spark-defaults.conf"))
    settings = bundle["variables"]["cluster"]["default"]["spark_conf"]
    assert settings.items() <= defaults.items()
    assert STATE_CONF.items() <= settings.items()
    for job in bundle["resources"]["jobs"].values():
        for task in job["tasks"]:
            program = task["spark_python_task"]
            assert (path.parent / program["python_file"]).is_file()
            for given in program["parameters"]:
                assert (CONF.parent / given.removeprefix("${workspace.file_path}/")).is_file()
