"""Admin requests to the brokers, repeated on retriable errors until a deadline."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, admin

from spark_cursor_source.errors import CursorqError, KafkaUnavailable
from spark_cursor_source.kafka.config import open_client
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.error_codes import (
    RETRIABLE,
    TURNED_AWAY,
    UNKNOWN_TOPIC,
    ErrorCallback,
    error_of,
    refusal,
    said,
    unavailable,
)

LOOK_ANEW_S = 1.5  #: a call that waits for this long triggers a metadata refresh
_ONE_LOOK_S = 1.0


class LivingAdmin:
    """AdminClient that is replaced when it has no broker left. Threads may share it.

    librdkafka sends most admin requests to one broker, the controller. It only looks for a new controller
    with its next metadata request. A client without topics makes that request every five minutes, so calls
    would wait that long for a dead broker. A call that waits therefore requests metadata.

    A single broker that was fenced for a moment returns an empty broker list. librdkafka then drops its only
    known broker and in some cases never adds it again. Only a new client helps then. The client is replaced
    only by one that reaches the brokers, so an outage alone does not replace it.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = dict(config)
        self._looking = threading.Lock()
        self._spare: admin.AdminClient | None = None
        self.client = self._open()

    def look_anew(self, timeout_s: float) -> None:
        """Request metadata for at most ``timeout_s``. No effect while another thread does so."""
        if not self._looking.acquire(blocking=False):
            return
        try:
            if brokers_answer(self.client, timeout_s / 2):
                self._spare = None
                return
            self._spare = self._spare or self._open()
            if brokers_answer(self._spare, timeout_s / 2):
                self.client, self._spare = self._spare, None
        finally:
            self._looking.release()

    def _open(self) -> admin.AdminClient:
        return open_client(admin.AdminClient, self._config)


def brokers_answer(client: admin.AdminClient, timeout_s: float) -> bool:
    """Return whether the client receives metadata within the timeout, which is 1 s at most."""
    try:
        client.list_topics(timeout=min(timeout_s, _ONE_LOOK_S))
    except KafkaException:
        return False
    return True


log = logging.getLogger(__name__)

#: the module of NewTopic, OffsetSpec and so on, which are public but not in its __all__
ADMIN_TYPES: Any = admin

DENIAL_MS = 3_000  #: a new topic may be unknown to a broker for about this long

#: maximum wait for brokers that refuse the first connection, because they may be starting
FIRST_CONTACT_MS = 8_000

_TURNED_AWAY_MS = 10_000  # a broker that starts may refuse valid logins for this long
_ONE_REQUEST_S = 10.0
_PAUSE_S = 0.1
_LOOK_S = 0.05

ItemT = TypeVar("ItemT")
Request = Callable[[Sequence[ItemT], float], Mapping[Any, "Future[Any]"]]


def _resource_of(item: object) -> str:
    """Return what rights are granted on: of a partition, its topic."""
    return str(item[0] if isinstance(item, tuple) else item)


class AdminRequests:
    """AdminClient whose requests return a result or raise an error of this library."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._complaints = ErrorCallback()
        #: bootstrap servers, for commands that an error recommends
        self.servers = str(config.get("bootstrap.servers", ""))
        self._living = LivingAdmin({**config, "error_cb": self._complaints})

    @property
    def client(self) -> admin.AdminClient:
        """Client for the next request."""
        return self._living.client

    def meet(self, *, within_ms: int = FIRST_CONTACT_MS) -> None:
        """Wait for the first response of the brokers. Fail fast if no connection can be made.

        Call it at the start of a query, a client or a command. A wrong address, port or security protocol is
        then detected within seconds. If the brokers accept the connection but respond slowly, this method
        returns. The calls that follow have longer timeouts.

        Raises:
            KafkaUnavailable: every connection was refused or closed until ``within_ms`` had passed.
        """
        deadline, told = Deadline.after_ms(within_ms), False
        reason: KafkaError | None = None
        client = self.client
        answer = client.describe_cluster(request_timeout=max(within_ms, 1_000) / 1000)
        while not deadline.over:
            try:
                answer.result(_LOOK_S)
                return
            except FutureTimeout:
                client.poll(0)
            except KafkaException as failed:
                if error_of(failed).code() not in RETRIABLE:
                    return  # an error response also proves that the brokers are reachable
                break
            # Some errors only report a disconnect. The longest text is the most specific one.
            heard = [error for error in (reason, self._complaints.during(deadline)) if error is not None]
            reason = max(heard, key=lambda error: len(error.str()), default=None)
            if not told and self._complaints.all_down:
                told = True
                log.warning(
                    "The brokers cannot be reached. event=brokers_unreachable giving_up_in_s=%d why=%s",
                    deadline.left_s(),
                    said(reason),
                )
        if self._complaints.all_down:
            raise unavailable("connect to the brokers", deadline, reason)

    def ask(
        self,
        operation: str,
        items: Sequence[ItemT],
        request: Request[ItemT],
        *,
        deadline: Deadline,
        tolerated: frozenset[int] = frozenset(),
        denied: Callable[[ItemT], CursorqError | None] | None = None,
    ) -> tuple[dict[ItemT, Any], dict[ItemT, KafkaError]]:
        """Return the result for each item, and the error of each item whose error code is in ``tolerated``.

        ``request(items, timeout_s)`` returns a future per item, in the order of the items. If a topic stays
        unknown, ``denied(item)`` returns the error to raise, or None if the topic is known by then.

        Raises:
            NotAuthorized, KafkaRefused: the brokers refuse a request for a reason that does not pass.
            KafkaUnavailable: the deadline is over, or logins or certificates have been refused for 10 s.
        """
        answers: dict[ItemT, Any] = {}
        refused: dict[ItemT, KafkaError] = {}
        waiting, last = list(items), None
        denial: Deadline | None = None
        while waiting:
            again: list[ItemT] = []
            timeout_s = deadline.left_s(most=_ONE_REQUEST_S, least=0.05)
            for item, answer in zip(waiting, self._round(request, waiting, timeout_s), strict=True):
                if not isinstance(answer, KafkaError):
                    answers[item] = answer
                elif answer.code() in tolerated:
                    refused[item] = answer
                elif answer.code() in RETRIABLE:
                    again.append(item)
                    last = answer
                elif answer.code() in UNKNOWN_TOPIC:
                    again.append(item)
                    last = answer
                    denial = denial or Deadline.after_ms(DENIAL_MS)
                    if denial.over and denied is not None and (why := denied(item)) is not None:
                        raise why
                else:
                    raise refusal(answer, operation=operation, resource=_resource_of(item))
            if again and (deadline.over or self._is_turned_away(deadline)):
                raise self.unavailable(operation, deadline, last)
            if again:
                deadline.pause(_PAUSE_S)
            waiting = again
        return answers, refused

    def unavailable(self, operation: str, deadline: Deadline, last: KafkaError | None) -> KafkaUnavailable:
        """Return the error for an expired deadline, with the client errors that were reported meanwhile."""
        self.client.poll(0)
        return unavailable(operation, deadline, last, self._complaints)

    def _is_turned_away(self, deadline: Deadline) -> bool:
        self.client.poll(0)
        heard = self._complaints.during(deadline)
        return heard is not None and heard.code() in TURNED_AWAY and deadline.spent_ms > _TURNED_AWAY_MS

    def look_anew(self, deadline: Deadline) -> None:
        """Refresh the metadata to find the controller and live brokers.

        Call it while a request gets no response.
        """
        self._living.look_anew(deadline.left_s(most=_ONE_REQUEST_S, least=0.05))

    def _round(self, request: Request[ItemT], items: Sequence[ItemT], timeout_s: float) -> list[Any]:
        client = self.client  # kept for the round, because a request ends when its client is freed
        try:
            futures = list(request(items, timeout_s).values())
        except KafkaException as raised:
            # The client may have no broker to send the request to.
            self.look_anew(Deadline.after_ms(int(timeout_s * 1000)))
            return [error_of(raised)] * len(items)
        # librdkafka enforces the timeout itself. This deadline applies if it fails to do so.
        round_ = Deadline.after_ms(int((timeout_s + 5) * 1000))
        while wait(futures, round_.left_s(most=LOOK_ANEW_S)).not_done and not round_.over:
            self.look_anew(Deadline.after_ms(int(timeout_s * 1000) - round_.spent_ms))
            if self.client is not client:
                break
        return [_outcome(future) for future in futures]


def _outcome(future: Future[Any]) -> Any:
    try:
        return future.result(0)
    except KafkaException as raised:
        return error_of(raised)
    except FutureTimeout:
        return KafkaError(KafkaError._TIMED_OUT)
