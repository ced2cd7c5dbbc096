"""Decoder of the payloads that an operator sees."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

_CONFLUENT = b"\x00"  # first byte of a message with the id of its schema
_PREFIX_BYTES = 5  # this byte and the id


class Decoded(NamedTuple):
    """A value as it is shown."""

    data: bytes | None
    note: str | None  #: which format it had, or why it could not be decoded; None: nothing was decoded


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadDecoder:
    """Turns values of one format into JSON for people. What the topics hold does not change.

    A value may have the prefix of Confluent's serializers: a zero byte and four bytes with the id of its
    schema. The id is not looked up. A value that cannot be decoded stays as it is.

    >>> def digits(data: bytes) -> object:
    ...     return {"number": int(data)}
    >>> decoder = PayloadDecoder(form="digits", read=digits)
    >>> decoder.value(b"17")
    Decoded(data=b'{"number": 17}', note='decoded from digits')
    >>> decoder.value(b"\\0\\0\\0\\0\\7" + b"18").data
    b'{"number": 18}'
    """

    form: str  #: name of the format
    read: Callable[[bytes], object]  #: returns a value for ``json.dumps``, or raises ValueError
    #: the same for what follows the id of a schema; None: as ``read``
    read_confluent: Callable[[bytes], object] | None = None

    def value(self, data: bytes | None) -> Decoded:
        """Returns the value of a message as JSON, or as it is with a note."""
        if not data:
            return Decoded(data, None)
        try:
            return Decoded(self._json(data).encode(), f"decoded from {self.form}")
        except (ValueError, RecursionError) as why:
            return Decoded(data, f"not decoded from {self.form}: {why}")

    def _json(self, data: bytes) -> str:
        if data.startswith(_CONFLUENT) and len(data) >= _PREFIX_BYTES:
            try:
                return _dumped((self.read_confluent or self.read)(data[_PREFIX_BYTES:]))
            except ValueError:
                pass  # a value without a prefix may begin with a zero byte, too
        return _dumped(self.read(data))


def _dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
