"""Template of an error text: what stays the same when one fault hits many messages."""

from __future__ import annotations

import re

#: the first pattern that matches at a place wins
_MASKS = re.compile(
    r"""
      (?<!\w)(?P<text>'[^'\n]*'|"[^"\n]*"|`[^`\n]*`)(?!\w)
    | (?P<time>\b\d{4}-\d\d-\d\d[T\ ]\d\d:\d\d[\d:.,]*(?:Z|[+-]\d\d:?\d\d)?)
    | (?P<id>\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b
        |\b0[xX][0-9a-fA-F]+\b
        |\b(?=[0-9a-fA-F]*[0-9])(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{8,}\b
        |\b(?=\w*[0-9])(?=\w*[A-Za-z])\w{12,}\b)
    | (?P<n>(?<![\w.])[-+]?\d+(?:[.,:]\d+)*)
    """,
    re.VERBOSE,
)


def error_template(error: str) -> str:
    """Returns an error text with its quoted texts, times, ids and numbers masked, in one line.

    Errors of one cause have one template, so that they can be counted and chosen together.

    >>> error_template("Timeout: no answer of 'bank-7' in 30 s")
    'Timeout: no answer of <text> in <n> s'
    >>> error_template("order 6f1c2d3e-0000-4abc-8def-0123456789ab: 12.5 > 10")
    'order <id>: <n> > <n>'
    >>> error_template("can't read it's page 0x7f3a since 2026-11-23T03:04:05Z")
    "can't read it's page <id> since <time>"
    """
    return " ".join(_MASKS.sub(lambda found: f"<{found.lastgroup}>", error).split())
