"""Reader of Java .properties files. They are read when a client is opened, so options need no secrets."""

from __future__ import annotations

import re
import socket
from pathlib import Path

from spark_cursor_source.errors import KafkaConfigFileUnreadable

_LOGICAL = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties_file(path: str) -> dict[str, str]:
    """Return the options of the file. An error names file, host and line, but never shows the content."""
    try:
        raw = Path(path.removeprefix("file://")).expanduser().read_bytes()
    except (OSError, ValueError, RuntimeError) as cause:
        why = (cause.strerror if isinstance(cause, OSError) else None) or "its path is malformed"
        raise KafkaConfigFileUnreadable(path, socket.gethostname(), why) from cause
    try:
        return parse_properties(_decode(raw))
    except ValueError as malformed:
        # "from None": the line can contain a secret, and a chained traceback would show it.
        raise KafkaConfigFileUnreadable(path, socket.gethostname(), str(malformed)) from None


def parse_properties(text: str) -> dict[str, str]:
    """Return the entries of a .properties text, as java.util.Properties reads them.

    ValueError names the line.
    """
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        match = _LOGICAL.fullmatch(line)
        if match is None:
            raise ValueError(f"line {number} is malformed")
        name, value = (_unescape(part, number) for part in match.groups())
        if not name:
            raise ValueError(f"line {number} has no name before its value")
        properties[name] = value
    return properties


def _decode(raw: bytes) -> str:
    # Java reads Latin-1, but editors write UTF-8. A password with an umlaut works in both encodings.
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _logical_lines(text: str) -> list[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    begun: tuple[int, str] | None = None
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = natural.lstrip(" \t\f")
        if begun is None and (not line or line[0] in "#!"):
            continue
        first, head = begun or (number, "")
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            begun = (first, head + line[:-1])
            continue
        lines.append((first, head + line))
        begun = None
    return lines if begun is None else [*lines, begun]


def _unescape(text: str, number: int) -> str:
    def one(match: re.Match[str]) -> str:
        escaped = match.group(1)
        if len(escaped) == 5:
            return chr(int(escaped[1:], 16))
        if escaped == "u":
            raise ValueError(f"line {number} has a malformed \\u escape")
        return _CONTROL.get(escaped, escaped)

    return _ESCAPE.sub(one, text)
