"""Transactional producer that is replaced whenever the outcome of a transaction is unknown."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from spark_cursor_source.errors import CursorqError, KafkaUnavailable, NotAuthorized, TrackerFenced
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.admin_requests import brokers_answer
from spark_cursor_source.kafka.config import open_client
from spark_cursor_source.kafka.config_roles import consumer_config, producer_config
from spark_cursor_source.kafka.confirmed_producer import ConfirmedProducer
from spark_cursor_source.kafka.confirmed_producer import Record as Sent
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.error_codes import (
    FENCED,
    NOT_A_MEMBER,
    UNAUTHORIZED,
    acl_of_ids,
    error_of,
    refusal,
    shown,
    unavailable,
)

log = logging.getLogger(__name__)

CALL_TIMEOUT_MS = 10_000  #: timeout of one transactional call; after it the producer is replaced

# Longer than any attempt. After a timeout the coordinator fences the producer, as if by a rival.
_TRANSACTION_TIMEOUT_MS = 300_000
_LEAST_S = 0.5
_POLL_S = 0.05
_PAUSE_S = 0.2  # between attempts
_STALLED = 3  # number of call timeouts without progress before a flush fails
_LOOK_MS = 2_000  # time without progress after which a flush checks its connections
_LOOK_S = 1.0
_GRACE_S = 1.0  # extra time for a call to return by itself after its timeout

#: errors that neither a retry nor a new producer resolves
_HOPELESS = UNAUTHORIZED | {
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_GROUP_ID,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TRANSACTION_TIMEOUT,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.OFFSET_METADATA_TOO_LARGE,
    KafkaError.POLICY_VIOLATION,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError._INVALID_ARG,
    KafkaError._UNSUPPORTED_FEATURE,
}


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a transaction."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, str | bytes | None]] = ()


class Uncertain(Exception):
    """Unknown outcome: the transaction failed or may have succeeded. Its producer is closed.

    The outbox handles this error. Users never receive it.
    """

    def __init__(self, operation: str, error: KafkaError) -> None:
        super().__init__(f"{operation}: {shown(error)}")
        self.operation = operation
        self.error = error


class TransactionalProducer:
    """Producer with a group's name as ``transactional.id``.

    Opening it fences the previous producer of that id. ``member`` returns the group metadata of a member of
    the group, whose generation is then a further fence (KIP-447). Who is no member opens no producer.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        group: str,
        *,
        transactional_id: str | None = None,
        member: Callable[[], Any] | None = None,
        call_timeout_ms: int = CALL_TIMEOUT_MS,
        transaction_timeout_ms: int = _TRANSACTION_TIMEOUT_MS,
    ) -> None:
        self._id, self._group = transactional_id or group, group
        self._member = member
        self._config = dict(config)
        self._call_timeout_s = call_timeout_ms / 1000
        # The brokers abort a transaction that exceeds its timeout.
        self._stall_s = min(_STALLED * call_timeout_ms, transaction_timeout_ms // 2) / 1000
        settings = producer_config(
            # Keep the brokers when all are down. A rebootstrap would find them again, but librdkafka would
            # keep the old coordinator entry and never reconnect to it (librdkafka issue 5511).
            {"retry.backoff.ms": 20, "linger.ms": 0, "metadata.recovery.strategy": "none", **config},
            {
                "transactional.id": self._id,
                "transaction.timeout.ms": transaction_timeout_ms,
                "message.timeout.ms": transaction_timeout_ms,
            },
        )
        self._confirmed = ConfirmedProducer(settings)
        self._group_config = consumer_config(config, {"group.id": group})
        self._group_metadata: Any = None
        self._is_doubtful = False  # the last call to the group's coordinator has not returned or has failed
        self._undelivered: KafkaError | None = None
        self._delivered: list[Message] | None = None  # only kept for the ``inspect`` argument of commit
        self._written_to: set[str] = set()

    @property
    def is_open(self) -> bool:
        return self._confirmed.current is not None

    def open(self, deadline: Deadline) -> None:
        """Open the producer as the only one of its id.

        An unfinished transaction of a previous one is aborted.

        The call waits for unavailable brokers.

        Raises:
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        while not self.is_open:
            try:
                self._try_to_open(deadline)
            except Uncertain as failed:
                self.wait(failed, deadline)

    def wait(self, failed: Uncertain, deadline: Deadline) -> None:
        """Pause before another attempt.

        Raises:
            KafkaUnavailable: the deadline is over.
        """
        if deadline.over:
            raise unavailable(
                failed.operation, deadline, failed.error, self._confirmed.complaints
            ) from failed
        deadline.pause(_PAUSE_S)

    def commit(
        self,
        records: Iterable[Record],
        positions: Iterable[TopicPartition],
        deadline: Deadline,
        *,
        inspect: Callable[[Sequence[Message]], bool] | None = None,
    ) -> bool:
        """Write the records and the group's offsets atomically.

        Return False if ``inspect`` has rejected them.

        ``inspect`` is called with the records as the brokers have stored them, before the commit. If it
        returns False, the transaction is aborted.

        Raises:
            TrackerFenced: another producer of the id was opened later, or ``member`` left the group.
            Uncertain: the transaction failed or may have succeeded.
            NotAuthorized, KafkaRefused
        """
        producer = self._confirmed.current
        assert producer is not None
        self._undelivered = None
        self._delivered = None if inspect is None else []
        self._written_to.clear()
        try:
            producer.begin_transaction()
            self._confirmed.send(
                producer, self._noted(records), on_delivery=self._on_delivery, deadline=deadline
            )
            self._flush(producer, deadline)
            if inspect is not None and not inspect(self._delivered or []):
                producer.abort_transaction(self._left_s(deadline))
                return False
            self._send_offsets(producer, list(positions), self._left_s(deadline))
            producer.commit_transaction(self._left_s(deadline))
            return True
        except KafkaException as raised:
            del producer  # see _given_up
            raise self._given_up(raised, "commit a transaction") from raised
        except BaseException:
            del producer
            self.discard()
            raise

    def discard(self) -> None:
        """Close the producer. The next producer of the id aborts its unfinished transaction."""
        self._confirmed.discard()

    def _try_to_open(self, deadline: Deadline) -> None:
        if self._member is not None:
            self._member()
        elif self._group_metadata is None:
            consumer = open_client(Consumer, self._group_config)
            self._group_metadata = consumer.consumer_group_metadata()
            consumer.close()
        self._undelivered = None  # of the previous producer
        try:
            self._confirmed.open().init_transactions(self._left_s(deadline))
        except KafkaException as raised:
            raise self._given_up(raised, "begin transactions") from raised

    def _send_offsets(self, producer: Producer, offsets: list[TopicPartition], timeout_s: float) -> None:
        """Add the group's offsets to the transaction.

        A call that does not return keeps its producer. So the next call waits for an answer of the group's
        coordinator first, on a connection of its own.
        """
        if self._is_doubtful and not self._coordinator_answers(offsets, timeout_s):
            raise _no_coordinator()
        group = self._group_metadata if self._member is None else self._member()
        self._is_doubtful = True
        _returned_within(
            timeout_s + _GRACE_S, lambda: producer.send_offsets_to_transaction(offsets, group, timeout_s)
        )
        self._is_doubtful = False

    def _coordinator_answers(self, offsets: Iterable[TopicPartition], timeout_s: float) -> bool:
        admin = ClusterAdmin(self._config).within(Deadline.after_ms(int(timeout_s * 1000)))
        places = [(place.topic, place.partition) for place in offsets]
        try:
            admin.committed_with_metadata(self._group, places, stable=False)
        except KafkaUnavailable:
            return False
        except CursorqError:  # an answer; the transaction raises its own error
            pass
        return True

    def _left_s(self, deadline: Deadline) -> float:
        return deadline.left_s(most=self._call_timeout_s, least=_LEAST_S)

    def _noted(self, records: Iterable[Record]) -> Iterator[Sent]:
        for record in records:
            self._written_to.add(record.topic)
            yield record.topic, record.key, record.value, record.partition, list(record.headers)

    def _flush(self, producer: Producer, deadline: Deadline) -> None:
        """Wait until the brokers have all records, as long as records are accepted.

        The commit would also flush, but only within the timeout of one call. Many records on a slow network
        or under a quota would then never be committed.
        """
        left, stalled = len(producer), self._stall(deadline)
        look = Deadline.after_ms(_LOOK_MS)
        while left:
            if stalled.over:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            if look.over:
                if self._has_lost_brokers(producer):
                    raise KafkaException(
                        KafkaError(KafkaError._TRANSPORT, "only a new producer reaches a broker")
                    )
                look = Deadline.after_ms(_LOOK_MS)
            # Not flush(), which continues to call back after a callback has raised, as on a fatal error.
            producer.poll(_POLL_S)
            if len(producer) < left:
                stalled, look = self._stall(deadline), Deadline.after_ms(_LOOK_MS)
            left = len(producer)
        if (undelivered := self._undelivered) is not None:
            if undelivered.code() == KafkaError._PURGE_QUEUE:
                # The transaction failed before the record was sent. Its commit raises the reason.
                self._undelivered = None
                producer.commit_transaction(self._left_s(deadline))
            raise KafkaException(undelivered)

    def _has_lost_brokers(self, producer: Producer) -> bool:
        """Return whether the producer has no connection although a new client reaches the brokers.

        The metadata of a single broker that was fenced for a moment lists no broker. librdkafka then drops
        its only broker for good. A producer that a quota delays keeps its connection.
        """
        try:
            producer.list_topics(next(iter(self._written_to)), timeout=_LOOK_S)
        except KafkaException as raised:
            lost = error_of(raised).code() == KafkaError._TRANSPORT
        else:
            lost = False
        return lost and brokers_answer(open_client(AdminClient, self._config), _LOOK_S)

    def _stall(self, deadline: Deadline) -> Deadline:
        """Return the deadline for the next record.

        A quota can delay a record for longer than one call lasts.
        """
        return Deadline.after_ms(int(deadline.left_s(most=self._stall_s) * 1000))

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._undelivered = self._undelivered or error
        elif self._delivered is not None:
            self._delivered.append(message)

    def _given_up(self, raised: KafkaException, operation: str) -> CursorqError | Uncertain:
        """Close the producer and return the error to raise.

        The frames of a traceback refer to the producer. Without them, it ends here even if the error is kept.
        Else it would go on with its requests, and one that reaches the brokers late fences the next producer.
        """
        error = error_of(raised)
        if error.code() == KafkaError._FATAL:
            error = self._fatal_error(error)
        if error.code() not in FENCED | NOT_A_MEMBER and self._undelivered is not None:
            # the transaction only reports failed records, and this error has the reason
            error = self._undelivered
        raised.__traceback__ = None
        self.discard()
        if error.code() in FENCED | NOT_A_MEMBER:
            return TrackerFenced(self._id)
        if error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED and self._id != self._group:
            # The other members of the group have ids of their own.
            return NotAuthorized(self._id, operation, (acl_of_ids(self._group),))
        if error.code() in _HOPELESS:
            return refusal(error, operation=operation, resource=self._resource(error))
        log.warning(
            "A transactional call has an unknown result. A new producer finds the result out. "
            "event=transaction_uncertain operation=%s id=%s error=%s",
            operation,
            self._id,
            error,
        )
        return Uncertain(operation, error)

    def _resource(self, error: KafkaError) -> str:
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return ", ".join(sorted(self._written_to))
        return self._id

    def _fatal_error(self, error: KafkaError) -> KafkaError:
        """Return the reason of a fatal error, which only transactional calls report."""
        producer = self._confirmed.current
        assert producer is not None
        try:
            producer.abort_transaction(1.0)
        except KafkaException as raised:
            return error_of(raised)
        return error


def end_transactions(
    config: Mapping[str, Any],
    group: str,
    deadline: Deadline,
    *,
    transactional_id: str | None = None,
    member: Callable[[], Any] | None = None,
) -> None:
    """Fence the current producer of a ``transactional.id``, the group's or another one.

    Its open transaction is aborted. ``member`` is that of :class:`TransactionalProducer`.

    Raises:
        KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    producer = TransactionalProducer(config, group, transactional_id=transactional_id, member=member)
    try:
        producer.open(deadline)
    finally:
        producer.discard()


def _no_coordinator() -> KafkaException:
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, "the group's coordinator does not answer"))


def _returned_within(timeout_s: float, call: Callable[[], None]) -> None:
    """Run a call that may exceed its timeout, because librdkafka can wait for a coordinator forever.

    See librdkafka issue 5456. A call that does not return is abandoned with its producer, in a daemon thread
    that does not block the exit of the process.
    """
    failures: list[KafkaException] = []

    def run() -> None:
        try:
            call()
        except KafkaException as raised:
            failures.append(raised)

    thread = threading.Thread(target=run, daemon=True, name="cursorq-transaction")
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        raise _no_coordinator()
    if failures:
        raise failures[0]
