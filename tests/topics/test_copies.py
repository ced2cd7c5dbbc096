"""Copies that no broker confirms."""

from __future__ import annotations

import pytest

from spark_cursor_source.errors import CopiesNotDurable
from spark_cursor_source.topics.copies import MessageCopier


def test_a_copy_that_nobody_confirms_in_time_is_an_error() -> None:
    copies = MessageCopier({"bootstrap.servers": "127.0.0.1:9"}, patience_ms=300)
    copies.add("orders", 0, key=b"k", value=b"v", headers=[])
    with pytest.raises(CopiesNotDurable):
        copies.flush()
    copies.discard()
