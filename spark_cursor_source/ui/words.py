"""Numbers, times and bytes as the page shows them."""

from __future__ import annotations

import codecs
import json
import re
from datetime import UTC, datetime
from typing import NamedTuple

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
HEADER_BYTES = 2_048  #: a longer header is cut
PAYLOAD_BYTES = 65_536  #: a longer payload is cut
_DUMP_BYTES = 4_096  # a longer hex dump is cut
_MILLISECONDS = re.compile(r"\.\d{3}(?= UTC$)")
# characters that turn the direction of the text after them, such as U+202E
_TURNS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_UTF_8 = codecs.getincrementaldecoder("utf-8")


def count(number: float | None) -> str:
    """Returns a whole number with separators, or a dash.

    >>> count(12430), count(None)
    ('12,430', '–')
    """
    if number is None:
        return "–"
    return f"{number:,}" if isinstance(number, int) else f"{number:,.0f}"


def rate(per_second: float | None) -> str:
    """Returns messages per second in at most three digits.

    >>> [rate(number) for number in (None, 0.0, 0.034, 4.28, 812.0, 43_210.0)]
    ['–', '0', '0.03', '4.3', '812', '43,210']
    """
    if per_second is None:
        return "–"
    if per_second < 0.005:
        return "0"
    if per_second >= 10:
        return f"{per_second:,.0f}"
    return f"{per_second:.2f}" if per_second < 0.1 else f"{per_second:.1f}"


def duration(ms: float | None) -> str:
    """Returns a duration in its largest unit, or in two units from an hour on.

    >>> [duration(ms) for ms in (None, 40, 12_300, 200_000, 5_400_000, 180_000_000)]
    ['–', '0 s', '12 s', '3 min', '1 h 30 min', '2 d 2 h']
    """
    if ms is None:
        return "–"
    for at, (size, unit) in enumerate(_UNITS):
        if ms >= size:
            whole, rest = divmod(int(ms), size)
            finer = rest // _UNITS[at + 1][0] if at < 2 else 0
            return f"{whole} {unit}" + (f" {finer} {_UNITS[at + 1][1]}" if finer else "")
    return "0 s"


def ago(ms: float | None) -> str:
    """Returns how long ago something was.

    >>> ago(200_000), ago(300), ago(None)
    ('3 min ago', 'just now', '–')
    """
    if ms is None:
        return "–"
    return "just now" if ms < 1_000 else f"{duration(ms)} ago"


def exact(at_ms: int | None) -> str:
    """Returns a time in UTC with milliseconds, or an empty text.

    >>> exact(1_700_000_000_123)
    '2023-11-14 22:13:20.123 UTC'
    """
    if at_ms is None:
        return ""
    try:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"
    return at.strftime("%Y-%m-%d %H:%M:%S.") + f"{at_ms % 1000:03} UTC"


def second(at_ms: int | None) -> str:
    """Returns a time in UTC with seconds, or an empty text.

    >>> second(1_700_000_000_123), second(None)
    ('2023-11-14 22:13:20 UTC', '')
    """
    return _MILLISECONDS.sub("", exact(at_ms))


def size(number: int) -> str:
    """Returns a number of bytes.

    >>> size(812), size(65_536)
    ('812 B', '64.0 KiB')
    """
    return f"{number} B" if number < 1024 else f"{number / 1024:,.1f} KiB"


class Readable(NamedTuple):
    """Bytes in a form that people read."""

    form: str  #: ``JSON``, ``text``, ``hex`` or ``null``
    text: str
    cut_to: int | None = None  #: number of bytes that the text shows, if these are not all


def readable(data: bytes | None, *, most: int = PAYLOAD_BYTES) -> Readable:
    r"""Returns bytes as indented JSON, as text, or as a hex dump.

    Data longer than ``most`` bytes is cut. A hex dump shows at most 4 KiB.

    >>> readable(b'{"b":1}').text, readable(b"plain").form, readable(None).form
    ('{\n  "b": 1\n}', 'text', 'null')
    >>> readable(b"\xff\x00A").text
    '00000000  ff 00 41                                         ..A'
    >>> readable(b"plain", most=4)
    Readable(form='text', text='plai', cut_to=4)
    """
    if data is None:
        return Readable("null", "null")
    cut_to = most if len(data) > most else None
    if cut_to is None and (as_json := _json(data)) is not None:
        return Readable("JSON", as_json)
    if (text := _text(data[:most], whole=cut_to is None)) is not None:
        return Readable("text", text, cut_to)
    dumped = data[: min(most, _DUMP_BYTES)]
    return Readable("hex", _hex(dumped), len(dumped) if len(dumped) < len(data) else None)


def _json(data: bytes) -> str | None:
    if data[:1] not in (b"{", b"["):
        return None
    try:
        shown = json.dumps(json.loads(data), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
    shown = _TURNS.sub(lambda found: f"\\u{ord(found[0]):04x}", shown)
    return shown.encode(errors="backslashreplace").decode()  # a lone surrogate is no character


def _text(data: bytes, *, whole: bool) -> str | None:
    """Returns printable text, or None. A character that is cut at the end of a part is left out."""
    try:
        text = _UTF_8().decode(data, final=whole)
    except UnicodeDecodeError:
        return None
    return text if all(letter.isprintable() or letter in "\n\r\t" for letter in text) else None


def _hex(data: bytes) -> str:
    rows = [data[at : at + 16] for at in range(0, len(data), 16)]
    return "\n".join(
        f"{at * 16:08x}  {row.hex(' '):<47}  "
        + "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        for at, row in enumerate(rows)
    )
