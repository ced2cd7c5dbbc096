"""Where the demo is shown: a table that changes in a terminal, lines anywhere else."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.live import Live

from spark_cursor_source.devkit.demo.progress import Progress
from spark_cursor_source.devkit.demo.render import line, table


class Screen(Protocol):
    """Shown between ``__enter__`` and ``__exit__``; lines can be said at any time."""

    def say(self, text: str) -> None: ...

    def show(self, progress: Progress) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class LiveScreen:
    """A table that stays where it is; what is said scrolls above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False)

    def say(self, text: str) -> None:
        """A line of text."""
        self._console.print(text, highlight=False, markup=False)

    def show(self, progress: Progress) -> None:
        """How it stands now."""
        self._live.update(table(progress), refresh=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()


class PlainScreen:
    """A line every few seconds while something changes, and the table at the end."""

    def __init__(self, console: Console, *, every_s: float = 2.0) -> None:
        self._console = console
        self._every_s = every_s
        self._last: Progress | None = None
        self._due_s = 0.0

    def say(self, text: str) -> None:
        """A line of text."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)
        self._console.file.flush()

    def show(self, progress: Progress) -> None:
        """How it stands now."""
        if progress.elapsed_s >= self._due_s and (self._last is None or progress.rows != self._last.rows):
            self._due_s = progress.elapsed_s + self._every_s
            self.say(line(progress))
        self._last = progress

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._last is not None and kind is None:
            self._console.print(table(self._last))


def screen_of(console: Console) -> Screen:
    """The screen that fits where the console writes."""
    return LiveScreen(console) if console.is_terminal else PlainScreen(console)
