"""Mask of the payloads that an operator sees."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

HIDDEN = "***"  #: shown in place of a hidden value
_HIDDEN = HIDDEN.encode()
_BEFORE_JSON = b" \t\r\n\0\xef\xbb\xbf\xff\xfe"  # white space, byte order marks, zeros of UTF-16 and UTF-32

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadMask:
    """Hides parts of the payloads that are shown. What the topics hold does not change.

    A field is hidden in JSON objects at any depth, and as a header of this name. A value that is not JSON is
    hidden as a whole, because its fields are unknown. So is a key or a header that begins as JSON does and
    cannot be parsed.

    >>> mask = PayloadMask(fields=frozenset({"card"}))
    >>> mask.value(b'{"order": 17, "payer": {"card": "4711"}}')
    b'{"order": 17, "payer": {"card": "***"}}'
    >>> mask.value(b"card 4711"), mask.key(b"order-17"), PayloadMask(everything=True).key(b"order-17")
    (b'***', b'order-17', b'***')
    """

    fields: frozenset[str] = frozenset()  #: names of fields and headers
    everything: bool = False  #: hide keys, values and headers as wholes

    @property
    def is_empty(self) -> bool:
        """True if nothing is hidden."""
        return not self.fields and not self.everything

    def value(self, data: bytes | None) -> bytes | None:
        """Returns the value of a message without what is hidden."""
        if data is None or self.is_empty:
            return data
        return _HIDDEN if self.everything else self._fields_hidden(data, otherwise=_HIDDEN)

    def key(self, data: bytes | None) -> bytes | None:
        """Returns the key of a message without what is hidden. A key that is not JSON has no fields."""
        if data is None or self.is_empty:
            return data
        return _HIDDEN if self.everything else self._fields_hidden(data, otherwise=data)

    def headers(self, headers: Iterable[tuple[str, bytes | None]]) -> Headers:
        """Returns the headers of a message without the values that are hidden."""
        return tuple((name, self._header(name, data)) for name, data in headers)

    def _header(self, name: str, data: bytes | None) -> bytes | None:
        if data is None or self.is_empty:
            return data
        return _HIDDEN if self.everything or name in self.fields else self.key(data)

    def _fields_hidden(self, data: bytes, *, otherwise: bytes) -> bytes:
        try:
            found = json.loads(data)
            if not isinstance(found, dict | list):
                return otherwise
            shown = json.dumps(self._hidden_in(found), ensure_ascii=False)
            return shown.encode(errors="backslashreplace")  # a lone surrogate has no UTF-8
        except (ValueError, RecursionError):
            return _HIDDEN if data.lstrip(_BEFORE_JSON)[:1] in (b"{", b"[") else otherwise

    def _hidden_in(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: HIDDEN if name in self.fields else self._hidden_in(one) for name, one in value.items()
            }
        return [self._hidden_in(one) for one in value] if isinstance(value, list) else value


NO_MASK = PayloadMask()
