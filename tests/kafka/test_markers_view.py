"""The view ``markers`` of names that nobody has is an error, and of names that somebody had is none."""

from __future__ import annotations

import pytest

from spark_cursor_source.core.marker import Hello
from spark_cursor_source.errors import UnknownQueueTopic, UnknownSubscription
from spark_cursor_source.options.view import ViewOptions
from spark_cursor_source.spark.views.markers import MarkersReader
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire import marker as marker_wire
from tests.kafka.control_plane import Control, cell_of, cursor_of, produce

pytestmark = pytest.mark.broker


@pytest.fixture
def known(control: Control) -> Control:
    """A subscription that has a cursor, and markers of two others: one was deleted, one is kafka-mq-go's."""
    cell = cell_of("orders")
    produce(
        control.config, control.cursors, [{"key": cell.key, "value": cursor_wire.encode(cursor_of(cell, 5))}]
    )
    hello = Hello(cell=cell_of("invoices", subscription="deleted"), position=0, run_id="r")
    end = marker_wire.MarkerV1(queue_id=b"mails", type=marker_wire.MarkerType.END, partition=0, offset=0)
    records = [
        {"key": hello.cell.key, "value": marker_wire.encode(hello)},
        {"key": b"mails", "value": marker_wire.encode_v1(end)},
        {"key": b"?", "value": b"no marker, which is shown to everybody"},
    ]
    produce(control.config, control.markers, records)
    return control


def rows(control: Control, **options: str) -> int:
    """How many markers the view shows."""
    servers = control.config["bootstrap.servers"]
    names = {"markersTopic": control.markers, "cursorsTopic": control.cursors}
    given = {"kafka.bootstrap.servers": servers, "view": "markers", **names, **options}
    reader = MarkersReader(ViewOptions.parse(given))
    return sum(batch.num_rows for one in reader.partitions() for batch in reader.read(one))


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"subscription": "biling"}, UnknownSubscription, "'biling'. Its subscriptions are: billing"),
        ({"subscribe": "ordes"}, UnknownQueueTopic, "of queue topic 'ordes'. Its topics are: orders"),
        (
            {"subscription": "billing", "subscribe": "ordes"},
            UnknownQueueTopic,
            "of queue topic .ordes.. Its topics are: orders",
        ),
    ],
)
def test_the_markers_of_a_misspelled_name_are_an_error_with_the_names_that_there_are(
    known: Control, options: dict[str, str], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        rows(known, **options)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 3),
        ({"subscription": "billing"}, 1),  # it has a cursor, and no markers any more
        ({"subscription": "deleted"}, 2),
        ({"subscribe": "invoices"}, 3),  # markers of version 1 do not say their topic
        ({"subscription": "mails"}, 2),
        ({"subscription": "biling", "cursorsTopic": "no-such-cursors"}, 1),  # nobody knows which there are
    ],
)
def test_the_markers_of_a_subscription_that_has_them_are_shown_without_a_cursor(
    known: Control, options: dict[str, str], expected: int
) -> None:
    assert rows(known, **options) == expected
