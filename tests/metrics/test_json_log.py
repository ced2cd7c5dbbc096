"""Log lines as JSON: the library's own with their fields, and those of others."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from spark_cursor_source.metrics import JsonFormatter
from tools import reference


@pytest.fixture
def told() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    log = logging.getLogger("test.json")
    log.propagate = False
    log.addHandler(handler)
    yield log, stream
    log.removeHandler(handler)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_has_its_sentence_its_event_and_its_fields(told: tuple[logging.Logger, io.StringIO]) -> None:
    log, stream = told
    log.warning(
        "%d of 100 %% failed. event=%s topic=%s messages=%d after_s=%.1f why=%s: %s fail=%s",
        *(3, "failed", "a topic\nof two lines", 7, 2.26, "ValueError", "x = 5", None),
    )
    (line,) = lines(stream)
    assert (line["level"], line["logger"]) == ("WARNING", "test.json")
    assert line["time"].endswith("+00:00")
    assert (line["message"], line["event"]) == ("3 of 100 % failed.", "failed")
    assert line["fields"] == {
        "topic": "a topic\nof two lines",
        "messages": 7,
        "after_s": 2.26,
        "why": "ValueError: x = 5",
        "fail": None,
    }


def test_lines_of_other_libraries_keep_their_message_and_exceptions_their_traceback(
    told: tuple[logging.Logger, io.StringIO],
) -> None:
    log, stream = told
    log.error("plain %s", "text")
    log.error("%(name)s", {"name": "mapping"})
    log.error(ValueError("no text"))
    try:
        raise KeyError("k")
    except KeyError:
        log.exception("It failed. event=it_failed")
    first, second, third, last = lines(stream)
    assert [one["message"] for one in (first, second, third)] == ["plain text", "mapping", "no text"]
    assert "event" not in first
    assert (last["event"], last["fields"]) == ("it_failed", {})
    assert "KeyError: 'k'" in last["exception"]


def test_each_line_of_the_library_is_taken_apart() -> None:
    templates = {line.text for line in reference.log_lines() if line.event is not None}
    assert len(templates) > 50
    for template in sorted(templates):
        check_parts(template)


def check_parts(template: str) -> None:
    count = template.replace("%%", "").count("%")
    arguments = tuple(range(1, count + 1))
    record = logging.LogRecord("x", logging.INFO, "", 0, template, arguments, None)
    line = json.loads(JsonFormatter().format(record))
    text = record.getMessage()
    assert text.startswith(line["message"])
    assert f"event={line['event']}" in text
    shown = " ".join(
        [line["message"], f"event={line['event']}", *(f"{k}={v}" for k, v in line["fields"].items())]
    )
    assert shown.replace(".0", "") == " ".join(text.split()).replace(".0", "")
