"""``cursorq doctor``: examines a cluster, and names the command that cures each finding."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_cursor_source.cli.cluster import Cluster, connected
from spark_cursor_source.cli.frame import Json
from spark_cursor_source.cli.output import plain, print_json
from spark_cursor_source.core.duration import parse_duration

UNWELL = 3  #: exit code with a finding of severity error


@connected
def doctor(
    cluster: Cluster,
    subscription: Annotated[str | None, typer.Option(metavar="NAME", help="default: all")] = None,
    topic: Annotated[str | None, typer.Option(metavar="NAME", help="the queue topic; default: all")] = None,
    role: Annotated[
        str | None, typer.Option(metavar="ROLE", help="check the rights of a 'tracker' or a 'consumer'")
    ] = None,
    tracker_wait: Annotated[
        str, typer.Option(metavar="TIME", help="how long a living tracker may take for waiting markers")
    ] = "5s",
    strict: Annotated[bool, typer.Option("--strict", help="warnings are errors")] = False,
    json: Json = False,
) -> None:
    """Examines the control topics, the tracker and the subscriptions, and says what cures each finding.

    The exit code is 0 without errors, and 3 with errors. Nothing is changed.
    """
    from dataclasses import asdict

    from spark_cursor_source.admin.doctor import ROLES, examine
    from spark_cursor_source.admin.findings import ERROR, INFO

    if role not in (None, *ROLES):
        raise typer.BadParameter(f"it is neither {' nor '.join(ROLES)}", param_hint="'--role'")
    findings = examine(
        cluster.kafka,
        subscription=subscription,
        topic=topic,
        role=role,
        **cluster.names,
        tracker_wait_ms=parse_duration(tracker_wait),
    )
    if json:
        print_json([asdict(one) for one in findings])
    elif not findings:
        print("nothing is wrong")
    else:
        for one in findings:
            print(f"{one.severity:<8}{plain(one.what)}")
            print(f"        found: {plain(one.evidence)}")
            if one.cure:
                print(f"        cure:  {plain(one.cure)}")
    if any(one.severity == ERROR or (strict and one.severity != INFO) for one in findings):
        raise typer.Exit(UNWELL)
