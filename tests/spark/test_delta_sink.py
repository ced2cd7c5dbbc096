"""Options that DeltaSink refuses. What it writes is in ``e2e/test_delta.py``."""

from __future__ import annotations

import pytest

from spark_cursor_source import DeltaSink
from spark_cursor_source.errors import AckedBySource, ConflictingOptions

OPTIONS = {"kafka.bootstrap.servers": "b:9092", "subscribe": "orders", "subscription": "s"}


@pytest.mark.parametrize(
    ("more", "names"),
    [({"markerFormat": "v1"}, "markerFormat"), ({"action": "release"}, "action")],
)
def test_options_without_exactly_once_are_refused(more: dict[str, str], names: str) -> None:
    with pytest.raises(ConflictingOptions, match=names):
        DeltaSink("orders", OPTIONS | more)


def test_a_source_that_acks_before_the_write_is_refused() -> None:
    with pytest.raises(AckedBySource, match="cumulative"):
        DeltaSink("orders", OPTIONS | {"ackMode": "cumulative"})
