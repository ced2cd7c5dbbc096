"""Output of the demo: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.live import Live

from spark_cursor_source.devkit.demo.progress import Progress
from spark_cursor_source.devkit.demo.render import line, table


class Screen(Protocol):
    """Output that is active between ``__enter__`` and ``__exit__``. Lines can be printed at any time."""

    def say(self, text: str) -> None: ...

    def show(self, progress: Progress) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class LiveScreen:
    """A table at a fixed place; lines scroll above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False)

    def say(self, text: str) -> None:
        """Prints a line of text."""
        self._console.print(text, highlight=False, markup=False)

    def show(self, progress: Progress) -> None:
        """Updates the table."""
        self._live.update(table(progress), refresh=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()


class PlainScreen:
    """Prints a line every few seconds while the state changes, and the table at the end."""

    def __init__(self, console: Console, *, every_s: float = 2.0) -> None:
        self._console = console
        self._every_s = every_s
        self._last: Progress | None = None
        self._due_s = 0.0

    def say(self, text: str) -> None:
        """Prints a line of text."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)
        self._console.file.flush()

    def show(self, progress: Progress) -> None:
        """Prints the state if it has changed and the interval has passed."""
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
    """Returns the screen that fits the console's output."""
    return LiveScreen(console) if console.is_terminal else PlainScreen(console)
