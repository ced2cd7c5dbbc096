"""Backoff and error reports for messages that could not be appended again."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.topics.retry_pauses import pause_ms

log = logging.getLogger(__name__)

_LATE_MS = 1_000  # a topic that takes longer to fail is skipped for a while
# a message not seen this long after its next try was due counts as ended by its consumer
_FORGOTTEN_MS = 60_000

MessageId = tuple[int, int]  # (partition, offset) in the queue topic


@dataclass(frozen=True, slots=True)
class _Trouble:
    tries: int
    why: str
    markers_partition: int
    forgotten: Deadline


class ReappendPauses:
    """Counts the failed tries of each message. The counts restart at zero with the tracker.

    >>> troubles = ReappendPauses()
    >>> too_large = {(0, 7): "too large"}
    >>> [troubles.failed(too_large, {(0, 7): 3}, alone=[(0, 7)], spent_ms=9_000)[0, 7] for _ in range(3)]
    [2000, 4000, 8000]
    >>> troubles.of(3), troubles.closed
    (('too large', 1), None)
    >>> troubles.succeeded([(0, 7)])
    >>> troubles.of(3)
    ('', 0)
    """

    def __init__(self) -> None:
        self._troubles: dict[MessageId, _Trouble] = {}
        self._closed: tuple[str, Deadline] | None = None

    @property
    def closed(self) -> str | None:
        """Reason why re-appending is suspended now; None if it is not suspended.

        A topic that responds slowly blocks all other work, so it is skipped for a while.
        """
        if self._closed is None or self._closed[1].over:
            return None
        return self._closed[0]

    def failed(
        self,
        whys: Mapping[MessageId, str],
        markers_partitions: Mapping[MessageId, int],
        *,
        alone: Collection[MessageId],
        spent_ms: int,
    ) -> dict[MessageId, int]:
        """Records failures. Returns the pause of each message until its next try, in ms.

        Messages in ``alone`` failed for a cause of their own instead of a cause of their topic. ``spent_ms``
        is the duration of the try.
        """
        pauses = {}
        for message_id, why in whys.items():
            known = self._troubles.get(message_id)
            tries = 1 if known is None else known.tries + 1
            pauses[message_id] = pause_ms(tries, 0 if message_id in alone else spent_ms)
            forgotten = Deadline.after_ms(pauses[message_id] + _FORGOTTEN_MS)
            self._troubles[message_id] = _Trouble(tries, why, markers_partitions[message_id], forgotten)
        of_topic = next((message_id for message_id in whys if message_id not in alone), None)
        if of_topic is not None and spent_ms > _LATE_MS:
            self._closed = whys[of_topic], Deadline.after_ms(pause_ms(1, spent_ms))
        self._log(whys, pauses)
        return pauses

    def put_off(self, wanted: Collection[MessageId], why: str) -> dict[MessageId, int]:
        """Returns the pause in ms of messages that were not tried."""
        left_ms = 0 if self._closed is None else int(self._closed[1].left_s() * 1000)
        pauses = dict.fromkeys(wanted, max(left_ms, 1))
        self._log(dict.fromkeys(wanted, why), pauses)
        return pauses

    def succeeded(self, message_ids: Iterable[MessageId]) -> None:
        """Forgets the failures of these messages."""
        if self._troubles:
            for message_id in message_ids:
                self._troubles.pop(message_id, None)

    def of(self, markers_partition: int) -> tuple[str, int]:
        """Returns why messages of a markers partition could not be appended, and their number."""
        for message_id, trouble in list(self._troubles.items()):
            if trouble.forgotten.over:
                del self._troubles[message_id]
        whys = [held.why for held in self._troubles.values() if held.markers_partition == markers_partition]
        return (whys[-1], len(whys)) if whys else ("", 0)

    @staticmethod
    def _log(whys: Mapping[MessageId, str], pauses: Mapping[MessageId, int]) -> None:
        counts = Counter((why, pauses[message_id] // 1000) for message_id, why in whys.items())
        for (why, next_s), count in counts.items():
            log.error(
                "Messages could not be appended again and are retried. event=reappend_failed "
                "messages=%d next_try_s=%d why=%s",
                count,
                next_s,
                why,
            )
