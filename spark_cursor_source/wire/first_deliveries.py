"""First delivery times inside other records, as differences of a few bytes per step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise

from spark_cursor_source.core.delivery_times import FirstDeliveries
from spark_cursor_source.errors import InvalidControlRecord
from spark_cursor_source.wire.control_pb2 import FirstDeliveries as FirstDeliveriesPb


def encode_first_deliveries(first: FirstDeliveries) -> FirstDeliveriesPb | None:
    """Returns the protobuf message of the times, or None if no time is known.

    >>> known = FirstDeliveries(((10, 1_700_000_000_000), (300, 1_700_000_002_250)))
    >>> pb = encode_first_deliveries(known)
    >>> list(pb.offsets), list(pb.at_ms), decode_first_deliveries(pb) == known
    ([10, 290], [1700000000000, 2250], True)
    """
    if not first.steps:
        return None
    offsets, times_ms = zip(*first.steps, strict=True)
    return FirstDeliveriesPb(offsets=_differences(offsets), at_ms=_differences(times_ms))


def decode_first_deliveries(pb: FirstDeliveriesPb) -> FirstDeliveries:
    """Returns the times of a protobuf message.

    Raises:
        InvalidControlRecord: the steps of the message do not ascend.
    """
    offsets, times_ms = list(accumulate(pb.offsets)), list(accumulate(pb.at_ms))
    if (
        len(offsets) != len(times_ms)
        or min([*offsets, *times_ms], default=0) < 0
        or any(later <= earlier for earlier, later in pairwise(offsets))
    ):
        raise InvalidControlRecord("the first deliveries of a cursor are in no order")
    return FirstDeliveries(tuple(zip(offsets, times_ms, strict=True)))


def _differences(numbers: Iterable[int]) -> Iterator[int]:
    before = 0
    for number in numbers:
        yield number - before
        before = number
