"""Classification of librdkafka's error codes: retry, stop, or a task for the operator."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from spark_cursor_source.errors import CursorqError, KafkaRefused, KafkaUnavailable, NotAuthorized
from spark_cursor_source.kafka.deadline import Deadline

#: temporary errors: a broker restarts, a leader moves or a request times out
RETRIABLE = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._DESTROY_BROKER,  # the metadata no longer contains the broker of the request
        KafkaError._MSG_TIMED_OUT,
        KafkaError._PARTIAL,  # a fenced broker that knows no other broker and no topic
        KafkaError._RESOLVE,
        KafkaError._RETRY,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_CACHE,
        KafkaError._WAIT_COORD,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    }
)

#: a broker with stale metadata also reports these for existing topics; final only if they persist
UNKNOWN_TOPIC = frozenset(
    {
        KafkaError._NOENT,  # no visible leader for any of several partitions
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)

#: operations, as in :func:`refusal`
COMMIT, READ_COMMITTED = "commit offsets of group", "read offsets of group"

#: a consumer needs a new position and has none: retention or a truncation removed the records at its position
OFFSET_RESET = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION})
_TRUNCATION = "log truncation detected"
_END = re.compile(r"broker end offset is (\d+)")

UNAUTHORIZED = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)

#: The brokers are reachable, but authentication or TLS fails. It may pass: a broker that starts refuses valid
#: logins, and a token may expire before the client has the next one.
TURNED_AWAY = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})

#: errors of a request about offsets that may pass: a new topic or right may be unknown for a while
NOT_NOW = RETRIABLE | TURNED_AWAY | UNKNOWN_TOPIC

_HUNG_UP = (
    "connections end without an answer, as where a listener speaks TLS and the client does not "
    "(kafka.security.protocol=SSL or SASL_SSL does), or the other way round"
)

_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})

#: another producer with the same transactional id was opened later
FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
    }
)

#: the group has a newer generation, so the committing member does not own its partitions any more
NOT_A_MEMBER = frozenset(
    {KafkaError.FENCED_INSTANCE_ID, KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID}
)


def is_truncation(error: KafkaError) -> bool:
    """True if a consumer reports that records before its position were lost.

    librdkafka reports it as a failed offset reset with a text of its own.
    """
    return error.code() in OFFSET_RESET and _TRUNCATION in error.str().lower()


def truncated_at(error: KafkaError) -> int | None:
    """Return the end of the records that are left, from an error of :func:`is_truncation`."""
    found = _END.search(error.str())
    return None if found is None else int(found.group(1))


def error_of(raised: KafkaException) -> KafkaError:
    """Return the error in an exception of librdkafka."""
    error = raised.args[0] if raised.args else None
    return error if isinstance(error, KafkaError) else KafkaError(KafkaError._FAIL, str(raised))


def failures_of_commit(
    error: KafkaError | None, partitions: Iterable[TopicPartition]
) -> list[tuple[str, KafkaError]]:
    """Return the errors of an ``on_commit`` callback as (topic, error).

    The topic is empty if all have failed.
    """
    failed = [(place.topic, place.error) for place in partitions if place.error is not None]
    return [("", error)] if error is not None and not failed else failed


def shown(error: KafkaError) -> str:
    """Return name and text of an error. librdkafka's texts contain host names, but no credentials."""
    return f"{error.name()}: {error.str()}"


def facts(failed: CursorqError) -> str:
    """Return the facts of an error without its advice, for places where no restart is needed."""
    return str(failed).partition("; ")[0]


def refusal(error: KafkaError, *, operation: str, resource: str) -> CursorqError:
    """Convert an error that a retry does not resolve to an error of this library."""
    if error.code() in UNAUTHORIZED:
        return NotAuthorized(resource, operation, (_acl_for(error, operation, resource),))
    return KafkaRefused(operation, resource, shown(error))


def refusal_of_offsets(error: KafkaError, *, operation: str, topic: str, group: str) -> CursorqError:
    """Convert an error of a request about offsets of a group.

    ``topic`` is the one of the offsets, empty if those of several topics have failed.
    """
    of_topic = topic and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    return refusal(error, operation=operation, resource=topic if of_topic else group)


def why_too_large(refused: CursorqError) -> str | None:
    """Return the brokers' answer if they refused records because one is too large, and None otherwise."""
    cause = refused.__cause__
    if isinstance(cause, KafkaException) and (error := error_of(cause)).code() in _TOO_LARGE:
        return shown(error)
    return None


def acl(operation: str, name: str, kind: str = "topic") -> str:
    """Return a right in the form of ``kafka-acls.sh --add`` arguments.

    >>> acl("Read", "orders"), acl("Write", "cursorq-tracker-m", "transactional-id")
    ('--operation Read --topic orders', '--operation Write --transactional-id cursorq-tracker-m')
    """
    return f"--operation {operation} --{kind} {name}"


def acl_of_ids(group: str) -> str:
    """Return the right to the transactional ids of all members of a group.

    >>> acl_of_ids("g")
    '--operation Write --transactional-id g --resource-pattern-type prefixed'
    """
    return f"{acl('Write', group, 'transactional-id')} --resource-pattern-type prefixed"


def _acl_for(error: KafkaError, operation: str, resource: str) -> str:
    """Return the right that an operation of this library lacks."""
    first, _, rest = operation.partition(" ")
    match error.code():
        case KafkaError.GROUP_AUTHORIZATION_FAILED:
            return acl({"delete": "Delete", "describe": "Describe"}.get(first, "Read"), resource, "group")
        case KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return acl("Write", resource, "transactional-id")
        case KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            needed = "DescribeConfigs" if rest.startswith("configs") else "Describe"
            return f"--operation {'Create' if first == 'create' else needed} --cluster"
    if rest.startswith("configs"):
        return acl("DescribeConfigs", resource)
    words = {"read": "Read", "write": "Write", "publish": "Write", "commit": "Write"}
    words |= {"create": "Create", "delete": "Delete"}
    if operation == COMMIT:  # of offsets, for which the group reads the topic
        return acl("Read", resource)
    return acl(words.get(first, "Describe"), resource)


class ErrorCallback:
    """An ``error_cb`` that records why the brokers of a client are unusable.

    The failing calls themselves only time out, both for a wrong password and for unreachable brokers.
    """

    def __init__(self) -> None:
        self._last: tuple[float, KafkaError] | None = None
        self.all_down = False  #: True if all brokers were unreachable at any time

    def __call__(self, error: KafkaError) -> None:
        self.all_down = self.all_down or error.code() == KafkaError._ALL_BROKERS_DOWN
        # librdkafka reports _ALL_BROKERS_DOWN after the error that caused it, so keep the cause.
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self._last is None:
            self._last = (time.monotonic(), error)

    def during(self, deadline: Deadline) -> KafkaError | None:
        """Return the last error since the deadline was set."""
        if self._last is None or self._last[0] < time.monotonic() - deadline.spent_ms / 1000:
            return None
        return self._last[1]


def unavailable(
    operation: str, deadline: Deadline, last: KafkaError | None, complaints: ErrorCallback | None = None
) -> KafkaUnavailable:
    """Return the error for an expired deadline."""
    heard = (complaints.during(deadline) if complaints is not None else None) or last
    return KafkaUnavailable(operation, deadline.spent_ms, said(heard))


def group_unavailable(
    operation: str, group: str, deadline: Deadline, last: KafkaError | None, complaints: ErrorCallback | None
) -> KafkaUnavailable:
    """Return the error for an expired deadline of an operation on a group, such as :data:`COMMIT`."""
    return unavailable(f"{operation} '{group}'", deadline, last, complaints)


def said(heard: KafkaError | None) -> str:
    """Return the last error as text.

    librdkafka gives no reason if a broker closes the connection silently.
    """
    if heard is None:
        return "nothing"
    text = shown(heard)
    if heard.code() == KafkaError._ALL_BROKERS_DOWN:
        return f"{text}, {_HUNG_UP}"
    return text
