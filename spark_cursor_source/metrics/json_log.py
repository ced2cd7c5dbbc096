"""Log lines as JSON, and the log of a command."""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

_FIELD = re.compile(r"(\w+)=(.*?)(?=\s+\w+=|$)", re.DOTALL)
_PLACEHOLDER = re.compile(r"%[^%a-zA-Z]*[a-zA-Z]")
_EVENT = re.compile(r"\s+event=")


class JsonFormatter(logging.Formatter):
    """Formatter of log records: one JSON object for each line.

    The lines of this library have their sentence as ``message``, their ``event``, and their other fields
    under ``fields``, with numbers as numbers. All lines have ``time`` (ISO 8601, UTC), ``level`` and
    ``logger``; those of an exception have ``exception``, the traceback.

    >>> record = logging.LogRecord("spark_cursor_source.x", logging.INFO, "", 0,
    ...     "The limit is reached. event=limit_reached topic=%s messages=%d", ("my topic", 3), None)
    >>> told = json.loads(JsonFormatter().format(record))
    >>> told["message"], told["event"], told["fields"]
    ('The limit is reached.', 'limit_reached', {'topic': 'my topic', 'messages': 3})

    Example::

        import logging

        from spark_cursor_source.metrics import JsonFormatter

        handler = logging.StreamHandler()
        handler.setFormatter(JsonFormatter())
        logging.getLogger("spark_cursor_source").addHandler(handler)
    """

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record as JSON on one line."""
        told: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            **_parts(record),
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False, default=str)


class LogFormat(StrEnum):
    """Forms of the log lines of a command."""

    TEXT = "text"
    JSON = "json"


def log_to_stderr(form: LogFormat) -> None:
    """Sends the log lines of this process to stderr, from INFO on. For the process of a command."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if form is LogFormat.JSON:
        for handler in logging.getLogger().handlers:
            handler.setFormatter(JsonFormatter())


def _parts(record: logging.LogRecord) -> dict[str, Any]:
    """Returns the sentence, and the event with its fields if the record has one."""
    template, arguments = record.msg, record.args or ()
    if not isinstance(template, str) or not isinstance(arguments, tuple):
        return {"message": record.getMessage()}
    sentence, *rest = _EVENT.split(template, maxsplit=1)
    if not rest:
        return {"message": record.getMessage()}
    inside = len(_PLACEHOLDER.findall(sentence.replace("%%", "")))
    left = list(arguments[inside:])
    fields: dict[str, Any] = {}
    for name, form in _FIELD.findall(f"event={rest[0]}"):
        count = len(_PLACEHOLDER.findall(form.replace("%%", "")))
        taken, left = left[:count], left[count:]
        fields[name] = _value(form.strip(), taken)
    event = fields.pop("event")
    return {"message": sentence % arguments[:inside], "event": event, "fields": fields}


def _value(form: str, arguments: list[Any]) -> Any:
    """Returns the value of a field: a number or a truth value as it is, anything else as text."""
    if (
        len(arguments) == 1
        and _PLACEHOLDER.fullmatch(form)
        and isinstance(arguments[0], bool | int | float | None)
    ):
        return arguments[0]
    return form % tuple(arguments) if arguments else form
