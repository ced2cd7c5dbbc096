"""Pages that read topics when they are opened: a message, dead letters, the doctor's findings, actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from spark_cursor_source.admin import examine, group_dead_letters, read_audit
from spark_cursor_source.admin.marker_log import read_quarantine
from spark_cursor_source.admin.message_history import read_message, read_message_history
from spark_cursor_source.errors import CursorqError
from spark_cursor_source.kafka.record_headers import headers_of
from spark_cursor_source.ui.collector import Collector
from spark_cursor_source.ui.pages import Pages, dead_letter_topics, number_of
from spark_cursor_source.ui.settings import UiSettings
from spark_cursor_source.ui.words import HEADER_BYTES, readable

_T = TypeVar("_T")
_SEARCHED = 20_000  # records of each partition in which the page looks for quarantined ones
_QUARANTINED = 200  # quarantined records that the page shows
_TRACKER_MS = 2_000  # how long the doctor lets a tracker read waiting markers


class Lookups:
    """Answers that read topics, each in a thread of the web server."""

    def __init__(self, collector: Collector, settings: UiSettings, pages: Pages) -> None:
        self._collector = collector
        self._settings = settings
        self._pages = pages

    def message(self, request: Request) -> Response:
        topic, partition, offset = _place(request)
        one = self._settings
        history, failure = answer_of(
            lambda: read_message_history(
                one.kafka,
                topic,
                partition,
                offset,
                markers_topic=one.markers_topic,
                cursors_topic=one.cursors_topic,
                group_id_prefix=one.group_id_prefix,
            )
        )
        return self._pages.answer(
            request,
            self._collector.snapshot,
            "message.html",
            status=200 if failure is None else 404,
            topic=topic,
            partition=partition,
            offset=offset,
            name=request.query_params.get("name"),
            history=history,
            failure=failure,
        )

    def payload(self, request: Request) -> Response:
        """Answers with key, headers and value of a message, for a click on its page."""
        one = self._settings
        found, failure = answer_of(
            lambda: read_message(one.kafka, *_place(request), markers_topic=one.markers_topic)
        )
        mask = self._settings.mask
        headers = () if found is None else mask.headers(headers_of(found))
        decoder, value, note = self._settings.decoder, None if found is None else found.value(), None
        if decoder is not None:
            value, note = decoder.value(value)
        return self._pages.answer(
            request,
            self._collector.snapshot,
            "payload.html",
            failure="The message is not there any more." if found is None and failure is None else failure,
            key=None if found is None else readable(mask.key(found.key())),
            masked=not mask.is_empty,
            headers=[(name, readable(value, most=HEADER_BYTES)) for name, value in headers],
            value=None if found is None else readable(mask.value(value)),
            note=note,
        )

    def dead(self, request: Request) -> Response:
        one, snapshot = self._settings, self._collector.snapshot
        letters = request.query_params.get("letters", "").strip()
        groups, failure = None, None
        if letters:
            groups, failure = answer_of(
                lambda: group_dead_letters(one.kafka, letters, cursors_topic=one.cursors_topic)
            )
        return self._pages.answer(
            request,
            snapshot,
            "dead.html",
            topics=dead_letter_topics(snapshot),
            letters=letters or None,
            groups=groups,
            failure=failure,
            actions=one.allow_actions,
        )

    def quarantine(self, request: Request) -> Response:
        one = self._settings
        records, failure = answer_of(
            lambda: read_quarantine(
                one.kafka, markers_topic=one.markers_topic, last=_SEARCHED, limit=_QUARANTINED
            )
        )
        return self._pages.answer(
            request,
            self._collector.snapshot,
            "quarantine.html",
            records=records,
            failure=failure,
            searched=_SEARCHED,
            most=_QUARANTINED,
            markers_topic=one.markers_topic,
        )

    def audit(self, request: Request) -> Response:
        one = self._settings
        entries, failure = answer_of(lambda: read_audit(one.kafka, markers_topic=one.markers_topic))
        return self._pages.answer(
            request, self._collector.snapshot, "audit.html", entries=entries, failure=failure
        )

    def doctor(self, request: Request) -> Response:
        one = self._settings
        findings, failure = answer_of(
            lambda: examine(
                one.kafka,
                **one.names,
                tracker_wait_ms=_TRACKER_MS,
            )
        )
        return self._pages.answer(
            request, self._collector.snapshot, "doctor.html", findings=findings, failure=failure
        )


def answer_of(call: Callable[[], _T]) -> tuple[_T | None, str | None]:
    """Returns the result of a call, or the text of its error."""
    try:
        return call(), None
    except CursorqError as why:
        return None, str(why)


def _place(request: Request) -> tuple[str, int, int]:
    """Returns topic, partition and offset of a query; -1 for a number that is missing."""
    numbers = [number_of(request, name) for name in ("partition", "offset")]
    partition, offset = (-1 if number is None else number for number in numbers)
    return request.query_params.get("topic", ""), partition, offset
