"""Frame of the verbs: plain help with sections, and the options that several verbs have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from spark_cursor_source.metrics.json_log import LogFormat

Json = Annotated[bool, typer.Option("--json", help="print JSON")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="go on with new ones until Ctrl-C")]
LogForm = Annotated[LogFormat, typer.Option("--log-format", help="form of the log lines on stderr")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="do it without asking")]


def not_empty(text: str) -> str:
    """Returns the value of an option. A shell passes an empty text for a variable that is not set.

    Raises:
        typer.BadParameter: it is empty, or has only spaces.
    """
    if not str(text).strip():
        raise typer.BadParameter("it is empty; give a value, or leave it out")
    return str(text)


def path_not_empty(text: str) -> Path:
    """Returns the value of an option as a path. An empty path would be the current directory."""
    return Path(not_empty(text))


_FIRST = ("Arguments", "Options")


class Verb(TyperCommand):
    """A command whose help has a section for each panel of options."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_options(self, ctx, formatter)


class Verbs(TyperGroup):
    """A group of commands whose help has a section for each panel of commands."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        longest = max((len(name) for name in self.commands), default=0)
        for name, command in self.commands.items():
            if not command.hidden:
                panel = _panel(command) or "Commands"
                help = command.get_short_help_str(formatter.width - 6 - longest)
                sections.setdefault(panel, []).append((name.ljust(longest), help))
        _write_sections(sections, formatter)


def new_group(help: str, *, completion: bool = False) -> typer.Typer:
    """Returns an empty group of verbs."""
    return typer.Typer(
        cls=Verbs,
        help=help,
        add_completion=completion,
        no_args_is_help=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        subcommand_metavar="VERB ...",
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def add_verb(
    group: typer.Typer,
    run: Callable[..., Any],
    *,
    name: str | None = None,
    panel: str | None = None,
    hidden: bool = False,
) -> None:
    """Adds a verb. Its help is the docstring of ``run``, and its parameters are those of ``run``."""
    settings = {"help_option_names": ["-h", "--help"]}
    add = group.command(name, cls=Verb, rich_help_panel=panel, hidden=hidden, context_settings=settings)
    add(run)


def _write_options(command: Any, ctx: Any, formatter: Any) -> None:
    sections: dict[str, list[tuple[str, str]]] = {name: [] for name in _FIRST}
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None:
            own = "Arguments" if parameter.param_type_name == "argument" else "Options"
            sections.setdefault(_panel(parameter) or own, []).append(record)
    _write_sections(sections, formatter)


def _panel(of: Any) -> str | None:
    panel = getattr(of, "rich_help_panel", None)
    return panel if isinstance(panel, str) else None


def _write_sections(sections: dict[str, list[tuple[str, str]]], formatter: Any) -> None:
    for name, records in sections.items():
        if records:
            with formatter.section(name):
                formatter.write_dl(records)
