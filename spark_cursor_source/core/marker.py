"""Markers: events of the messages of a cell. Markers are the only input of the tracker.

Start, End and KeepAlive follow the kafka-mq-go markers of the same names. The other kinds follow Pulsar's
acknowledgement commands.

Start, End, KeepAlive, Release and Reject may have a ``topic_id``, the id of the queue topic. The tracker
ignores them in a cell of another topic id: a topic that was deleted and created again under its name has
other messages at the same offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.limits import Limits
from spark_cursor_source.core.offsets import OffsetSet

UNDO = "undo"  #: name of the state before the last move of a subscription
MAX_LEASE_MS = 12 * 3_600_000  #: longer leases are cut to 12 h, as in SQS and kafka-mq-go


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Leases the offsets for ``lease_ms``, for their ``delivery_count``-th delivery."""

    cell: Cell
    offsets: OffsetSet
    lease_ms: int
    delivery_count: int
    run_id: str  #: run of the planner
    alone: bool = False  #: suspects, delivered without other messages
    topic_id: str | None = None  #: None, here and below: unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Acknowledges the offsets, regardless of the lease holder.

    With a ``run_id``, a planner ends a batch as a whole: messages that were never delivered stay outstanding.
    With ``no_message``, a reader has found no record at the offsets, so nothing was acknowledged.
    """

    cell: Cell
    offsets: OffsetSet
    run_id: str | None = None
    no_message: bool = False
    topic_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndLeased:
    """Acknowledges the offsets of this delivery that the run still has leased (a batch that is committed).

    Messages that were released, rejected or left, whose lease expired, or that another run has leased since,
    are not changed.
    """

    cell: Cell
    offsets: OffsetSet
    run_id: str  #: run of the planner that leased the offsets
    delivery_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """Exempts the offsets of this delivery from the EndLeased of their batch. The lease continues.

    With a ``run_id``, the marker is of a planner that replays a batch without these messages. It is about
    leases of that run, which has died.
    """

    cell: Cell
    offsets: OffsetSet
    delivery_count: int
    run_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepAlive:
    """Extends the leases on the offsets to ``lease_ms`` after the broker time of this marker.

    With a ``delivery_count``, a holder extends: the marker sets the deadline, for that delivery only. With a
    ``run_id``, a planner extends: the marker covers all leases of that run and never shortens a deadline.
    """

    cell: Cell
    offsets: OffsetSet
    lease_ms: int
    delivery_count: int | None = None
    run_id: str | None = None
    topic_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Releases the offsets of this delivery (Pulsar's negative acknowledgement).

    With ``due_ms``, the messages were not delivered because they were not due. Their delivery does not count,
    and they become available at ``due_ms`` (broker time).
    """

    cell: Cell
    offsets: OffsetSet
    delivery_count: int
    delay_ms: int | None = None  #: None: the backoff of the policy; 0: no delay
    reason: str = ""
    due_ms: int | None = None
    topic_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Cancels this delivery of messages that must wait for an earlier message of their key.

    The delivery does not count. Each message becomes available when the message at its ``behind`` has ended.
    """

    cell: Cell
    offsets: OffsetSet
    behind: tuple[int, ...]  #: offset that each message waits for, in the order of ``offsets``
    delivery_count: int

    def behind_of(self, offset: int) -> int | None:
        """Returns the offset that a message waits for; None: the marker is not about it."""
        return self.behind[self.offsets.count_between(0, offset)] if offset in self.offsets else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """Sends the offsets of this delivery to the dead-letter topic."""

    cell: Cell
    offsets: OffsetSet
    delivery_count: int
    reason: str = ""
    topic_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndUpTo:
    """Acknowledges every offset below ``position`` (Pulsar's cumulative acknowledgement).

    With a ``run_id``, the marker is a planner's: messages that were never delivered stay outstanding.
    """

    cell: Cell
    position: int
    run_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seek:
    """Moves the read position to ``position`` and forgets all outstanding messages (Pulsar's reset-cursor).

    The cell then has no owner until a run writes a Hello.
    """

    cell: Cell
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """Makes the run the owner of the cell; a new cell starts at ``position``."""

    cell: Cell
    run_id: str
    position: int
    topic_id: str | None = None  #: id of the queue topic, from the broker


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseBreaker:
    """Closes the breaker by operator command, sends the held letters, and resets the dead-letter count."""

    cell: Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBreaker:
    """Opens the breaker for a trip; a breaker that already opened for this trip does not change."""

    cell: Cell
    trip: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOffsetObserved:
    """Records that the queue partition ends at ``position``: all messages below predate this marker."""

    cell: Cell
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Deletes the subscription with all state of the cell (Pulsar's unsubscribe)."""

    cell: Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Withhold:
    """Holds dead letters that could not be written; the tracker retries them after ``delay_ms``.

    The tracker writes this marker itself, in the transaction that forgets the dead letters that were written.
    """

    cell: Cell
    offsets: OffsetSet
    delivery_count: int  #: this field and the next three describe the dead letters
    reason: str
    error: str = ""
    last_delivery_ms: int = 0
    trouble: str  #: error of the failed write
    tries: int  #: number of failed writes, including this one
    delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Pauses the subscription: its consumers lease nothing until an EndPause. Present leases run on."""

    cell: Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class EndPause:
    """Ends a pause by operator command."""

    cell: Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLimits:
    """Sets the limits of the subscription by operator command, instead of those before."""

    cell: Cell
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveState:
    """Saves the state of the cell under a name, instead of an earlier state of that name.

    With a ``move``, the state ``UNDO`` is that before a Seek or EndUpTo, which follows. If that changes
    nothing, as one that is repeated, the earlier state stays.
    """

    cell: Cell
    name: str
    move: str = ""  #: id of the move, the same in all cells; empty: no move, or one of an earlier version


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreState:
    """Returns the cell to a saved state, as a Seek does. The state before is saved under ``UNDO``.

    With a ``move``, it is not saved if nothing changes.
    """

    cell: Cell
    name: str
    move: str = ""  #: id of this move, as in a SaveState
    #: ``next_marker`` of the saved state that is meant; nothing changes if another one has the name now
    next_marker: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetState:
    """Removes a saved state."""

    cell: Cell
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLost:
    """Ends the leases of a run whose member has left the consumer group (Pulsar's disconnect).

    The tracker accepts it from the owner of the cell only. Messages that were left with a Leave keep their
    leases, because another job acknowledges them.
    """

    cell: Cell
    run_id: str  #: run that writes the marker, the owner of the cell
    lost_run_id: str  #: run of the member that has left


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeue:
    """Makes messages that are gone available again, as if they had never been delivered.

    An operator redrives dead letters to their own subscription with it (RabbitMQ's requeue).
    """

    cell: Cell
    offsets: OffsetSet


Marker = (
    Start
    | End
    | EndLeased
    | Leave
    | KeepAlive
    | Release
    | Block
    | Reject
    | EndUpTo
    | Seek
    | Hello
    | CloseBreaker
    | OpenBreaker
    | EndOffsetObserved
    | Delete
    | Withhold
    | Pause
    | EndPause
    | SetLimits
    | Requeue
    | MemberLost
    | SaveState
    | RestoreState
    | ForgetState
)

#: markers of messages that may name the queue topic by its id
OfTopic = Start | End | KeepAlive | Release | Reject


def of_topics(markers: Iterable[Marker], topic_ids: Mapping[str, str]) -> Iterator[Marker]:
    """Yields the markers. Those of single messages have the id of their queue topic, if it is given.

    >>> cell = Cell(subscription="s", topic="t", partition=0)
    >>> (end,) = of_topics([End(cell=cell, offsets=OffsetSet.of((3, 5)))], {"t": "id-1"})
    >>> end.topic_id
    'id-1'
    """
    for marker in markers:
        topic_id = topic_ids.get(marker.cell.topic)
        if topic_id is not None and isinstance(marker, OfTopic):
            yield replace(marker, topic_id=topic_id)
        else:
            yield marker


def is_of_another_topic(marker: object, topic_id: str | None) -> bool:
    """True for a late marker of messages of a deleted topic: their offsets name other messages now."""
    if not isinstance(marker, OfTopic) or marker.topic_id is None or topic_id is None:
        return False
    return marker.topic_id != topic_id


#: names of the markers, as operators see them
KINDS: dict[type[Marker], str] = {
    Start: "START",
    End: "END",
    KeepAlive: "KEEPALIVE",
    Release: "RELEASE",
    Reject: "REJECT",
    EndUpTo: "END_UP_TO",
    Seek: "SEEK",
    Hello: "HELLO",
    CloseBreaker: "RESUME",
    OpenBreaker: "HOLD",
    EndOffsetObserved: "LOG_END",
    Delete: "DELETE",
    Withhold: "WITHHOLD",
    EndLeased: "END_LEASED",
    Leave: "LEAVE",
    Pause: "PAUSE",
    EndPause: "END_PAUSE",
    SetLimits: "LIMITS",
    Requeue: "REQUEUE",
    MemberLost: "MEMBER_LOST",
    SaveState: "SAVE",
    RestoreState: "RESTORE",
    ForgetState: "FORGET",
    Block: "BLOCK",
}
