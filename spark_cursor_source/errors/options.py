"""Errors of options that are refused before anything runs."""

from __future__ import annotations

from spark_cursor_source.errors.root import CursorqError, next_move_sentence, shown


class OptionsError(CursorqError):
    """Base class of errors about options that are refused before anything runs."""


class InvalidDuration(OptionsError):
    """Raised when a value is not a duration such as ``500ms``, ``30s``, ``5m``, ``2h`` or ``30 seconds``."""

    text: object
    template = "{_text} is not a duration. Write a whole number with a unit: 500ms, 30s, 5m, 2h or 1d."

    @property
    def _text(self) -> str:
        return shown(self.text)


class UnknownOption(OptionsError):
    """Raised when an option is not known; the message suggests the nearest name and never shows the value."""

    option: str
    did_you_mean: str | None = None
    why: str | None = None
    template = "There is no option '{option}'{_why}. {_next_move}"

    @property
    def _why(self) -> str:
        return f": {self.why}" if self.why else ""

    @property
    def _next_move(self) -> str:
        return f"Did you mean '{self.did_you_mean}'?" if self.did_you_mean else "Remove it."


class InvalidOption(OptionsError):
    """Raised when a known option has an invalid value; ``value`` is None where it could be a secret."""

    option: str
    value: object | None
    why: str
    next_move: str
    template = "Option '{option}'{_value} is invalid: {why}. {_next_move}"
    _next_move = next_move_sentence

    @property
    def _value(self) -> str:
        return "" if self.value is None else f" = {shown(self.value)}"


class MissingOption(OptionsError):
    """Raised when a required option is missing."""

    option: str
    next_move: str
    template = "Option '{option}' is missing. {_next_move}"
    _next_move = next_move_sentence


class ConflictingOptions(OptionsError):
    """Raised when options are valid each but cannot be combined."""

    options: tuple[str, ...]
    why: str
    next_move: str
    template = "Options {_named} conflict: {why}. {_next_move}"
    _next_move = next_move_sentence

    @property
    def _named(self) -> str:
        return ", ".join(f"'{option}'" for option in self.options)


class RefusedKafkaOption(OptionsError):
    """Raised when a ``kafka.*`` option breaks a guarantee, has no equivalent, or is refused by librdkafka."""

    option: str
    why: str
    next_move: str
    template = "Option 'kafka.{option}' is refused: {why}. {_next_move}"
    _next_move = next_move_sentence


class KafkaConfigFileUnreadable(CursorqError):
    """Raised when the file of ``kafka.config.file`` cannot be read on a host that needs it."""

    path: str
    host: str
    why: str
    template = (
        "kafka.config.file '{path}' cannot be read on host '{host}'. Reason: {why}. Put the file at the "
        "same path on the driver and on every executor."
    )
