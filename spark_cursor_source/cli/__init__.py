"""The ``cursorq`` command: parses arguments, makes one call, prints. Only this package prints.

A verb is a module with one function, whose parameters are the options of the verb (typer). ``app`` lists
them. A verb imports its work when it runs, so that ``--help`` and completion are fast.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from importlib.util import find_spec
from io import TextIOWrapper
from typing import Any

from spark_cursor_source.errors import CursorqError, ExtraNotInstalled

#: option without a value, in front of or behind the verb; ``main`` takes it out of the arguments
DEBUG = "--debug"
INTERRUPTED = 130  #: a shell's exit code after Ctrl-C
WRONG_USAGE = 2
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns the exit code.

    The exit code is 0 on success, 1 after an error (one line on stderr), 2 after wrong usage (raised as
    ``SystemExit``), and 130 after Ctrl-C. With ``--debug``, errors are followed by their traceback.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = DEBUG in arguments
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        # A message may have characters that the terminal's encoding has not.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        if find_spec("typer") is None:
            return _without_typer(arguments)
        # Imported here: Ctrl-C may come at any time.
        from spark_cursor_source.cli.app import COMPLETING, command_of

        command = command_of()
        if COMPLETING in os.environ:
            command.main(arguments, prog_name="cursorq")
        return _run(command, [one for one in arguments if one != DEBUG])
    except CursorqError as error:
        return _say(str(error), debug)
    except KeyboardInterrupt as interrupted:
        print(". ".join(["cursorq: interrupted", *getattr(interrupted, "__notes__", [])]), file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # A reader such as head has gone. Python flushes stdout once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 - the last line of a program
        if isinstance(error, OSError) and error.filename is not None:
            return _say(f"'{error.filename}' cannot be used: {error.strerror}. Give another path.", debug)
        if isinstance(error, OSError) and error.errno in _FULL:
            return _say(
                f"the output cannot be written: {error.strerror}. Make room, or write it elsewhere.", debug
            )
        told = f"unexpected {type(error).__name__}: {error}".splitlines()[0]
        return _say(f"{told}. Run it again with {DEBUG} and report the traceback.", debug)


def _run(command: Any, arguments: list[str]) -> int:
    import typer

    try:
        with command.make_context("cursorq", arguments) as context:
            return int(command.invoke(context) or 0)
    except typer.Exit as ended:
        return ended.exit_code
    except typer.Abort:
        print("cursorq: nothing was done", file=sys.stderr)
        return 1
    except _usage_error() as wrong:
        _refuse(wrong)
        raise SystemExit(WRONG_USAGE) from None


def _usage_error() -> type[Exception]:
    """Returns typer's class of wrong usage, which has no public name."""
    import typer

    return next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError")


def _refuse(wrong: Any) -> None:
    where = "cursorq" if wrong.ctx is None else wrong.ctx.command_path
    message = " ".join(wrong.format_message().split())
    if not message:  # no arguments at all
        print(wrong.ctx.get_help(), file=sys.stderr)
        return
    print(f"{where}: {message}{'' if message[-1] in '.?' else '.'} Run '{where} --help'.", file=sys.stderr)


def _say(message: str, debug: bool) -> int:
    print(f"cursorq: {message}", file=sys.stderr)
    if debug:
        traceback.print_exc()
    return 1


def _without_typer(arguments: list[str]) -> int:
    """Runs ``tracker``, which servers have without the extra ``[cli]``; refuses the other verbs."""
    if arguments[:1] == ["tracker"]:
        from spark_cursor_source.tracker.__main__ import main as run_tracker

        return run_tracker(arguments[1:])
    return _say(str(ExtraNotInstalled("cursorq", "typer", "cli")), False)
