"""Selection of the messages of the next batch, for the planner of a query and for the plain client.

While new messages and redeliveries both wait, each gets half of the budget. Capacity that one half leaves
unused goes to the other. Suspects go alone, and at most in every second batch while other messages are ready.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from spark_cursor_source.core.batch import Lane, RedeliveryRecord, SourceOffset, TopicPartition
from spark_cursor_source.core.offsets import EMPTY, OffsetSet

_Key = TypeVar("_Key", TopicPartition, int)


@dataclass(slots=True)
class Turns:
    """Alternation between new messages, redeliveries and suspects in one run."""

    after_alone: bool = False  #: the last batch held suspects
    odd_to_new: bool = True  #: new messages get the larger half of an odd budget

    def planned(self, *, alone: bool) -> None:
        """Records that a batch was planned."""
        self.after_alone = alone
        if not alone:
            self.odd_to_new = not self.odd_to_new

    def share(self, budget: int | None, *, again: int, new: int) -> tuple[int, int]:
        """Returns how many redeliveries and how many new messages go, from the numbers that wait.

        >>> [Turns().share(10, again=a, new=n) for a, n in ((99, 99), (2, 99), (99, 2), (99, 0))]
        [(5, 5), (2, 8), (8, 2), (10, 0)]
        >>> [Turns(odd_to_new=odd).share(1, again=99, new=99) for odd in (True, False)]
        [(0, 1), (1, 0)]
        """
        if budget is None:
            return again, new
        kept = (budget + self.odd_to_new) // 2  # reserved for new messages
        most = min(again, max(budget - kept, budget - new))
        return most, min(new, budget - most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """End positions of the next batch."""

    queue: Mapping[TopicPartition, int]
    ordinary: Lane
    suspects: Lane
    new: int  #: number of new messages from the queue
    again: int  #: number of redeliveries, suspects included


def admit(
    pending: Sequence[RedeliveryRecord],
    start: SourceOffset,
    ends: Mapping[int, int],
    *,
    origin: Mapping[TopicPartition, int],
    queue_ends: Mapping[TopicPartition, int],
    budget: int | None,
    room: int | None,
    turns: Turns,
    is_enough: Callable[[int], bool],
) -> Admitted | None:
    """Returns the end positions of the next batch, or None if no messages are to go.

    ``pending`` holds the announcements for this run up to ``ends``, in order within a partition. ``room``
    limits new messages only. ``is_enough`` gets the number of all waiting messages and tells whether a batch
    is worth planning; suspects do not wait for it.
    """
    lanes = start.lane(alone=False), start.lane(alone=True)
    records = _by_partition(pending, False), _by_partition(pending, True)
    waiting = [
        {number: sum(len(lane.rest(one)) for one in some) for number, some in of.items()}
        for lane, of in zip(lanes, records, strict=True)
    ]
    again, suspects = (sum(of.values()) for of in waiting)
    unread = sum(max(end - origin.get(tp, 0), 0) for tp, end in queue_ends.items())
    new = unread if room is None else min(unread, room)
    others_go = bool(again + new) and is_enough(again + suspects + unread)
    quotas: tuple[dict[int, int], dict[int, int]]
    if suspects and not (others_go and turns.after_alone):
        with_suspects = sorted(number for number, size in waiting[1].items() if size)
        number = with_suspects[_turn_of(lanes[1]) % len(with_suspects)]
        first = next(n for one in records[1][number] if (n := len(lanes[1].rest(one))))
        quotas = {}, {number: first if budget is None else min(first, max(budget, 1))}
        new = 0
    elif others_go:
        again, new = turns.share(budget, again=again, new=new)
        quotas = proportional(waiting[0], again, turn=_turn_of(lanes[0])), {}
    else:
        return None
    ordinary, apart = (
        _advance(lane, of, ends, quota) for lane, of, quota in zip(lanes, records, quotas, strict=True)
    )
    return Admitted(
        queue=admit_queue(origin, queue_ends, budget=new),
        ordinary=ordinary,
        suspects=apart,
        new=new,
        again=sum(number for quota in quotas for number in quota.values()),
    )


def admit_queue(
    start: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], *, budget: int | None
) -> dict[TopicPartition, int]:
    """Returns the end of a batch in each queue partition.

    A budget is shared in proportion to the waiting messages. As in Spark's Kafka source, a long backlog of
    one partition does not hold up the messages of another.

    >>> admit_queue({("t", 0): 0, ("t", 1): 0}, {("t", 0): 300, ("t", 1): 100}, budget=40)
    {('t', 0): 30, ('t', 1): 10}
    >>> admit_queue({("t", 0): 0, ("t", 1): 0}, {("t", 0): 1_000_000, ("t", 1): 2}, budget=40)
    {('t', 0): 39, ('t', 1): 1}
    """
    waiting = {tp: max(end - start.get(tp, 0), 0) for tp, end in ends.items()}
    budget = sum(waiting.values()) if budget is None else budget
    shares = proportional(waiting, budget, turn=sum(start.values()))
    return {tp: start.get(tp, 0) + share for tp, share in shares.items()}


def proportional(waiting: Mapping[_Key, int], budget: int, *, turn: int) -> dict[_Key, int]:
    """Splits a budget among the keys in proportion to their waiting messages, with at least one for each key.

    The keys take turns if the budget is smaller than their number: a number of keys of the size of the budget
    get one each, beginning with the key at the place ``turn``.
    """
    total, left = sum(waiting.values()), max(budget, 0)
    if total <= left:
        return dict(waiting)
    some = [key for key, size in waiting.items() if size]
    if left < len(some):
        first = turn % len(some)
        chosen = set((some + some)[first : first + left])
        return {key: int(key in chosen) for key in waiting}
    above, left = total - len(some), left - len(some)  # besides one for each
    shares = {key: 1 + left * (size - 1) // above if size else 0 for key, size in waiting.items()}
    left += len(some) - sum(shares.values())
    for key in sorted(waiting, key=lambda key: -waiting[key]):
        if left > 0 and shares[key] < waiting[key]:
            shares[key] += 1
            left -= 1
    return shares


def _turn_of(lane: Lane) -> int:
    """Returns a number that changes with each redelivery that is taken, and is the same after a restart."""
    return hash((tuple(sorted(lane.positions.items())), tuple(sorted(lane.cuts.items()))))


def _by_partition(pending: Sequence[RedeliveryRecord], alone: bool) -> dict[int, list[RedeliveryRecord]]:
    found: dict[int, list[RedeliveryRecord]] = {}
    for one in pending:
        if one.redeliver.alone == alone:
            found.setdefault(one.partition, []).append(one)
    return found


def _advance(
    lane: Lane,
    pending: Mapping[int, Sequence[RedeliveryRecord]],
    ends: Mapping[int, int],
    quotas: Mapping[int, int],
) -> Lane:
    """Returns the lane after ``quotas`` messages of each partition are taken; skips records of other runs."""
    positions, cuts = dict(lane.positions), dict(lane.cuts)
    for number, end in ends.items():
        left = quotas.get(number, 0)
        for one in pending.get(number, ()):
            rest = lane.rest(one)
            if not rest:
                continue
            piece = next(rest.chunks(left)) if left else EMPTY
            left -= len(piece)
            if len(piece) < len(rest):
                _stop_at(one, piece, lane, positions, cuts)
                break
        else:
            if end >= positions.get(number, 0):
                positions[number] = end
                cuts.pop(number, None)
    return Lane(positions=positions, cuts=cuts)


def _stop_at(
    one: RedeliveryRecord, piece: OffsetSet, lane: Lane, positions: dict[int, int], cuts: dict[int, int]
) -> None:
    number = one.partition
    begun = lane.cuts.get(number) if lane.positions.get(number) == one.offset else None
    positions[number] = one.offset
    cut = begun if piece.last is None else piece.last + 1
    if cut is None:
        cuts.pop(number, None)
    else:
        cuts[number] = cut
