"""``cursorq markers``: prints the markers, decoded, and the records in quarantine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spark_cursor_source.cli.cluster import Cluster, connected
from spark_cursor_source.cli.frame import Follow
from spark_cursor_source.cli.output import age, plain, print_line, short_time, until_interrupted
from spark_cursor_source.cli.subscription import instant
from spark_cursor_source.core.counted import counted

if TYPE_CHECKING:
    from spark_cursor_source.admin.marker_log import MarkerRecord

_SEARCHED = 10_000  # markers of each partition in which those of one subscription are looked for
_RANGES = 3  # ranges of offsets in a line


@connected
def markers(
    cluster: Cluster,
    subscription: Annotated[str | None, typer.Option(metavar="NAME", help="default: all")] = None,
    topic: Annotated[str | None, typer.Option(metavar="NAME", help="the queue topic; default: all")] = None,
    quarantined: Annotated[
        bool, typer.Option("--quarantined", help="only records that are no valid markers, with the reason")
    ] = False,
    since: Annotated[
        Any, typer.Option(parser=instant, metavar="TIME", help="ISO 8601 with an offset, or ms since 1970")
    ] = None,
    last: Annotated[int, typer.Option(metavar="N", min=0, help="how many, without --since")] = 20,
    follow: Follow = False,
    json: Annotated[bool, typer.Option("--json", help="print a line of JSON for each")] = False,
) -> None:
    """Prints the last markers, decoded, one line for each.

    With --quarantined, all records are searched that the markers topic has.
    """
    from spark_cursor_source.admin.marker_log import read_markers

    all_of_them = since is not None or quarantined
    searched = last if follow or subscription is topic is None else max(last, _SEARCHED)
    found = read_markers(
        cluster.kafka,
        markers_topic=cluster.markers_topic,
        subscription=subscription,
        topic=topic,
        quarantined=quarantined,
        since_ms=since,
        last=None if all_of_them else searched,
        follow=follow,
    )
    if follow:
        with until_interrupted():
            for one in found:
                _print(one, json)
        return
    kept = sorted(found, key=lambda one: (one.at_ms, one.partition, one.offset))
    for one in kept if all_of_them else kept[len(kept) - min(last, len(kept)) :]:
        _print(one, json)


def _print(one: MarkerRecord, json: bool) -> None:
    if json:
        print_line(one.to_json())
    else:
        print(line_of(one), flush=True)


def line_of(one: MarkerRecord) -> str:
    """Returns a marker as one line: time, place, kind, and what it says of which messages."""
    told = one.to_json()
    head = f"{short_time(one.at_ms)}  {one.partition}/{one.offset}  {one.kind:<11}"
    if one.error is not None:
        return f"{head} {plain(one.error)}"
    whose = told.get("subscription") or told.get("queue", "")
    place = "/".join(str(part) for part in (told.get("topic"), told["message_partition"]) if part is not None)
    details = [
        _ranges(told.get("offsets")),
        *(f"{name} {told[name]}" for name in ("position",) if name in told),
        *(f"delivery {told[name]}" for name in ("delivery_count",) if name in told),
        *(f"behind {_ranges(_ranges_of(told[name]))}" for name in ("behind",) if name in told),
        *(f"{name[:5]} {age(told[name])}" for name in ("lease_ms", "delay_ms") if name in told),
        *(f"run {told[name][:8]}" for name in ("run_id",) if name in told),
        plain(told.get("reason", "")),
    ]
    return f"{head} {plain(whose)} {place} {'  '.join(filter(None, details))}"


def _ranges_of(offsets: Iterable[int]) -> list[tuple[int, int]]:
    from spark_cursor_source.core.offsets import OffsetSet

    return list(OffsetSet.from_offsets(set(offsets)).iter_ranges())


def _ranges(ranges: list[tuple[int, int]] | None) -> str:
    if not ranges:
        return ""
    shown = [str(first) if end == first + 1 else f"{first}-{end - 1}" for first, end in ranges[:_RANGES]]
    total = counted(sum(end - first for first, end in ranges), "message")
    more = f",… ({total})" if len(ranges) > _RANGES else ""
    return ",".join(shown) + more
