"""What librdkafka's error codes call for: waiting, giving up, or the operator."""

from __future__ import annotations

import time
from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from spark_cursor_source.errors import CursorqError, KafkaRefused, KafkaUnavailable, NotAuthorized
from spark_cursor_source.kafka.deadline import Deadline

#: answered otherwise in a while: the broker restarts, a leader moves, nobody answers
RETRIABLE = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._DESTROY_BROKER,  # the broker that was asked is in the metadata no more
        KafkaError._MSG_TIMED_OUT,
        KafkaError._PARTIAL,  # a broker that knows of no broker, itself fenced, and of no topic
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

#: a broker that lags in metadata says so of topics that exist: final only when it is said for a while
UNKNOWN_TOPIC = frozenset(
    {
        KafkaError._NOENT,  # none of several partitions has a leader that may be seen
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)

UNAUTHORIZED = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)

#: the brokers are there, and this client and they do not come to terms
TURNED_AWAY = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})

_HUNG_UP = (
    "connections end without an answer, as where a listener speaks TLS and the client does not "
    "(kafka.security.protocol=SSL or SASL_SSL does), or the other way round"
)

#: a producer of the same transactional id was opened later
FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
    }
)


def error_of(raised: KafkaException) -> KafkaError:
    """The error that an exception of librdkafka carries."""
    error = raised.args[0] if raised.args else None
    return error if isinstance(error, KafkaError) else KafkaError(KafkaError._FAIL, str(raised))


def failures_of_commit(
    error: KafkaError | None, partitions: Iterable[TopicPartition]
) -> list[tuple[str, KafkaError]]:
    """What an ``on_commit`` callback was told, as (topic, why); the topic is empty where all have failed."""
    failed = [(one.topic, one.error) for one in partitions if one.error is not None]
    return [("", error)] if error is not None and not failed else failed


def shown(error: KafkaError) -> str:
    """Name and text of an error, for ours; librdkafka puts host names in them, no credentials."""
    return f"{error.name()}: {error.str()}"


def facts(failed: CursorqError) -> str:
    """The facts of an error of ours, without its advice: for where nothing is to be started again."""
    return str(failed).partition("; ")[0]


def refusal(error: KafkaError, *, operation: str, resource: str) -> CursorqError:
    """Our error for one that waiting does not change."""
    if error.code() in UNAUTHORIZED:
        return NotAuthorized(resource, operation, (_acl_for(error, operation, resource),))
    return KafkaRefused(operation, resource, shown(error))


def acl(operation: str, name: str, kind: str = "topic") -> str:
    """A right in the words of ``kafka-acls.sh --add``.

    >>> acl("Read", "orders"), acl("Write", "cursorq-tracker-m", "transactional-id")
    ('--operation Read --topic orders', '--operation Write --transactional-id cursorq-tracker-m')
    """
    return f"--operation {operation} --{kind} {name}"


def _acl_for(error: KafkaError, operation: str, resource: str) -> str:
    """The right that an operation of ours lacked."""
    first, _, rest = operation.partition(" ")
    match error.code():
        case KafkaError.GROUP_AUTHORIZATION_FAILED:
            return acl({"delete": "Delete", "describe": "Describe"}.get(first, "Read"), resource, "group")
        case KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return acl("Write", resource, "transactional-id")
        case KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            return f"--operation {'Create' if first == 'create' else 'Describe'} --cluster"
    if rest.startswith("configs"):
        return acl("DescribeConfigs", resource)
    words = {"read": "Read", "write": "Write", "publish": "Write", "commit": "Write"}
    words |= {"create": "Create", "delete": "Delete"}
    return acl(words.get(first, "Describe"), resource)


class ErrorCallback:
    """A client's ``error_cb``: why its brokers cannot be used.

    The failing calls only time out, be it that the password is wrong or that nobody is there.
    """

    def __init__(self) -> None:
        self._last: tuple[float, KafkaError] | None = None
        self.all_down = False  #: whether no broker was left to talk to, at any time

    def __call__(self, error: KafkaError) -> None:
        self.all_down = self.all_down or error.code() == KafkaError._ALL_BROKERS_DOWN
        # That all brokers are down is said after the reason for it.
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self._last is None:
            self._last = (time.monotonic(), error)

    def during(self, deadline: Deadline) -> KafkaError | None:
        """The last one since the deadline was set."""
        if self._last is None or self._last[0] < time.monotonic() - deadline.spent_ms / 1000:
            return None
        return self._last[1]


def unavailable(
    operation: str, deadline: Deadline, last: KafkaError | None, complaints: ErrorCallback | None = None
) -> KafkaUnavailable:
    """Our error for a deadline that is over."""
    heard = (complaints.during(deadline) if complaints is not None else None) or last
    return KafkaUnavailable(operation, deadline.spent_ms, said(heard))


def said(heard: KafkaError | None) -> str:
    """The last complaint in words; librdkafka gives no reason where a broker hangs up without a word."""
    if heard is None:
        return "nothing"
    text = shown(heard)
    if heard.code() == KafkaError._ALL_BROKERS_DOWN:
        return f"{text}, {_HUNG_UP}"
    return text
