"""Removed offsets on their way to a plain client: what has no copy is told in time; no broker is needed."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Collection, Generator, Mapping
from typing import Any

import pytest

from spark_cursor_source.client.queues.read_pauses import ReadPauses
from spark_cursor_source.client.queues.rescued_spans import RescuedSpans
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.rescue import RescuePlace
from spark_cursor_source.errors import DataLoss, KafkaUnavailable
from spark_cursor_source.topics.data_loss import report_loss
from spark_cursor_source.topics.rescue import RescuedMessage
from tests.waiting import wait_until

_ANSWERS = threading.Event()
_ANSWERS.set()


class StubRescue:
    """Copies of the given offsets. The requests whose numbers are in ``outages`` get no answer."""

    def __init__(
        self,
        *copies: int,
        gaps: OffsetSet = EMPTY,
        outages: Collection[int] = (),
        hangs: Mapping[int, threading.Event] | None = None,
    ) -> None:
        self._copies, self._gaps, self._outages = copies, gaps, outages
        self._hangs = hangs or {}  # partition -> when its requests are answered
        self._requests = itertools.count()
        self._reads = 0

    def messages(self, topic: str, number: int, wanted: OffsetSet) -> Generator[list[RescuedMessage]]:
        record: Any = None
        self._reads += 1
        try:
            for at in self._copies:
                if at in wanted:
                    self._request()
                    yield [RescuedMessage(place=RescuePlace(topic, "id", number), at=at, record=record)]
        finally:
            self._reads -= 1

    def without_message(self, topic: str, number: int, offsets: OffsetSet) -> OffsetSet:
        assert not self._reads, "an index of its own would read the whole rescue topic"
        self._hangs.get(number, _ANSWERS).wait(30)
        self._request()
        return self._gaps & offsets

    def _request(self) -> None:
        if next(self._requests) in self._outages:
            raise KafkaUnavailable("ask", 1, "no answer")


class Reader:
    """A reader of the removed offsets ``[0, past)``."""

    def __init__(self, rescue: Any, past: int, *, fail: bool = False) -> None:
        self.lost: list[int] = []
        self._fail = fail
        self.pauses = ReadPauses("t")
        self.spans = RescuedSpans(rescue, "t", self._on_lost, self.pauses)
        self.spans.add(0, 0, past)

    def _on_lost(self, number: int, offsets: OffsetSet) -> None:
        report_loss("t", number, offsets, fail=self._fail)
        self.lost += offsets

    def next(self, most: int) -> tuple[int, int, list[int], bool]:
        """Start and stop of the next messages, their offsets, and whether they are the last ones."""
        found = self.spans.next(most, paused=())
        assert found is not None
        span, is_last = found
        return span.start, span.stop, [message.offset() for message in span.messages], is_last


def test_a_loss_is_reported_before_the_messages_whose_starts_pass_it() -> None:
    # lost: 0-1, 4, 7-8 | no message: 3
    reader = Reader(StubRescue(2, 5, 6, gaps=OffsetSet.of((3, 4))), 9)
    assert reader.next(1) == (0, 3, [2], False)
    assert reader.lost == [0, 1]
    assert reader.next(2) == (3, 7, [5, 6], False)
    assert reader.lost == [0, 1, 4]
    assert reader.next(2) == (7, 9, [], True)
    assert reader.lost == [0, 1, 4, 7, 8]
    assert not reader.spans.partitions


def test_no_message_after_a_loss_is_delivered_if_a_loss_is_an_error() -> None:
    reader = Reader(StubRescue(0, 2), 3, fail=True)
    assert reader.next(1) == (0, 1, [0], False)
    for _ in range(2):
        with pytest.raises(DataLoss):
            reader.next(1)


@pytest.mark.parametrize("most", [1, 2, 5])
@pytest.mark.parametrize("outage", range(5))
def test_an_outage_at_any_request_keeps_what_follows(outage: int, most: int) -> None:
    gaps = OffsetSet.of((0, 1), (3, 4))
    reader = Reader(StubRescue(1, 2, gaps=gaps, outages=[outage]), 4)
    found: list[int] = []
    while reader.spans.partitions:
        answer = reader.spans.next(most, paused=())
        if answer is None:
            reader.pauses.forget([0])
            continue
        span, is_last = answer
        assert span.start == (found[-1] + 1 if found else 0)
        assert is_last is not bool(reader.spans.partitions)
        found += [message.offset() for message in span.messages]
    assert (found, reader.lost) == ([1, 2], [])


def test_a_partition_whose_copies_cannot_be_read_waits_for_a_pause_and_no_other_does() -> None:
    reader = Reader(StubRescue(0, 1, outages=[0]), 2)
    reader.spans.add(7, 0, 2)
    found = reader.spans.next(9, paused=())
    assert found is not None
    assert found[0].partition == 7
    assert reader.pauses.partitions == {0}
    assert isinstance(reader.pauses.trouble([0]), KafkaUnavailable)
    assert reader.pauses.trouble([0, 7]) is None
    assert reader.spans.next(9, paused=()) is None
    wait_until(lambda: not reader.pauses.partitions)
    assert reader.next(9) == (0, 2, [0, 1], True)
    assert reader.pauses.trouble([0]) is None


def test_a_partition_whose_copies_get_no_answer_holds_up_no_other() -> None:
    answers = threading.Event()
    reader = Reader(StubRescue(0, 1, hangs={0: answers}), 2)
    reader.spans.add(7, 0, 2)
    began = time.monotonic()
    found = None
    while found is None:
        found = reader.spans.next(9, paused=())
        assert time.monotonic() - began < 10
    assert found[0].partition == 7
    assert reader.spans.next(9, paused=()) is None
    assert reader.spans.partitions == {0}
    answers.set()
    wait_until(lambda: (again := reader.spans.next(9, paused=())) is not None and again[0].partition == 0)


def test_copies_of_a_partition_that_is_left_amid_their_read_are_forgotten() -> None:
    answers = threading.Event()
    reader = Reader(StubRescue(0, 1, hangs={0: answers}), 2)
    assert reader.spans.next(9, paused=()) is None
    reader.spans.drop([0])
    reader.spans.add(0, 1, 2)  # read anew, from a later position
    answers.set()
    found = None
    while found is None:
        found = reader.spans.next(9, paused=())
    assert ([one.offset() for one in found[0].messages], found[1]) == ([1], True)
