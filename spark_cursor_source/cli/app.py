"""All verbs of ``cursorq``."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.main import get_command

from spark_cursor_source.cli import (
    DEBUG,
    audit,
    broker,
    cursor,
    dead,
    demo,
    doctor,
    due,
    holes,
    init,
    limit,
    markers,
    message,
    metrics,
    pause,
    produce,
    stats,
    stuck,
    subscription,
    tail,
    top,
    topics,
    tracker,
    ui,
)
from spark_cursor_source.cli.frame import add_verb, new_group

COMPLETING = "_CURSORQ_COMPLETE"  #: variable that a shell sets to ask for completions

_HELP = """Individual-ack queues on Kafka.

Each option of the section Connection may also stand in a variable such as CURSORQ_BOOTSTRAP_SERVERS, or in
a profile of ~/.config/cursorq/config.toml. The command line comes first, then the variables, then the
profile."""

RUN, LOOK, ACT = "Start", "Look", "Act"
#: verbs by the section of the help
VERBS: dict[str, tuple[Callable[..., Any], ...]] = {
    RUN: (
        init.init,
        topics.topics,
        broker.broker,
        demo.demo,
        tracker.tracker,
        produce.produce,
        metrics.metrics,
    ),
    LOOK: (
        stats.stats,
        top.top,
        stuck.stuck,
        message.message,
        holes.holes,
        tail.tail,
        markers.markers,
        due.due,
        doctor.doctor,
        audit.audit,
        ui.ui,
    ),
    ACT: (pause.pause, pause.resume, limit.limit),
}
#: groups of verbs by the section of the help
GROUPS = {
    ACT: (("subscription", subscription.VERBS), ("dead", dead.VERBS), ("cursor", cursor.VERBS)),
}


def command_of() -> Any:
    """Returns the command with all its verbs."""
    app = new_group(_HELP, completion=True)
    app.callback()(_top)
    for panel, verbs in VERBS.items():
        for run in verbs:
            add_verb(app, run, panel=panel)
        for name, group in GROUPS.get(panel, ()):
            app.add_typer(group, name=name, rich_help_panel=panel)
    return get_command(app)


def _say_version(wanted: bool) -> None:
    if wanted:
        print(version("spark-cursor-source"))
        raise typer.Exit


def _top(
    debug: Annotated[bool, typer.Option(DEBUG, help="show the traceback of an error, with any verb")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="print the version", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Takes the options in front of the verb."""
