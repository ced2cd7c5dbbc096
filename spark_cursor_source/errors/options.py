"""Options that were refused before anything ran."""

from __future__ import annotations

from spark_cursor_source.errors.root import CursorqError, shown


class OptionsError(CursorqError):
    """An option, or a set of options, that was refused before anything ran."""


class InvalidDuration(OptionsError):
    """A text that is no duration: ``500ms``, ``30s``, ``5m``, ``2h``, ``1d`` and ``30 seconds`` are."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"{shown(self.text)} is no duration; write a whole number and a unit: 500ms, 30s, 5m, 2h or 1d"


class UnknownOption(OptionsError):
    """An option nobody reads; the nearest known one is named, its value never is."""

    def __init__(self, option: str, did_you_mean: str | None = None, why: str | None = None) -> None:
        super().__init__(option, did_you_mean, why)
        self.option, self.did_you_mean, self.why = option, did_you_mean, why

    def __str__(self) -> str:
        facts = f"unknown option '{self.option}'" + (f": {self.why}" if self.why else "")
        return facts + (f"; did you mean '{self.did_you_mean}'?" if self.did_you_mean else "; remove it")


class InvalidOption(OptionsError):
    """A known option with a value that cannot be; ``value`` is None where it could be a secret."""

    def __init__(self, option: str, value: object | None, why: str, next_move: str) -> None:
        super().__init__(option, value, why, next_move)
        self.option, self.value, self.why, self.next_move = option, value, why, next_move

    def __str__(self) -> str:
        value = "" if self.value is None else f" = {shown(self.value)}"
        return f"option '{self.option}'{value}: {self.why}; {self.next_move}"


class MissingOption(OptionsError):
    """An option that must be given is not there."""

    def __init__(self, option: str, next_move: str) -> None:
        super().__init__(option, next_move)
        self.option, self.next_move = option, next_move

    def __str__(self) -> str:
        return f"option '{self.option}' is missing; {self.next_move}"


class ConflictingOptions(OptionsError):
    """Options that are each valid and cannot be together."""

    def __init__(self, options: tuple[str, ...], why: str, next_move: str) -> None:
        super().__init__(options, why, next_move)
        self.options, self.why, self.next_move = options, why, next_move

    def __str__(self) -> str:
        named = ", ".join(f"'{option}'" for option in self.options)
        return f"options {named}: {self.why}; {self.next_move}"


class RefusedKafkaOption(OptionsError):
    """A ``kafka.*`` option that would break a promise, has no equivalent, or that librdkafka refuses."""

    def __init__(self, option: str, why: str, next_move: str) -> None:
        super().__init__(option, why, next_move)
        self.option, self.why, self.next_move = option, why, next_move

    def __str__(self) -> str:
        return f"option 'kafka.{self.option}': {self.why}; {self.next_move}"


class KafkaConfigFileUnreadable(CursorqError):
    """The file that ``kafka.config.file`` names cannot be read where it is needed."""

    def __init__(self, path: str, host: str, why: str) -> None:
        super().__init__(path, host, why)
        self.path, self.host, self.why = path, host, why

    def __str__(self) -> str:
        return (
            f"kafka.config.file '{self.path}' cannot be read on host '{self.host}': {self.why}; "
            "put the file at the same path on the driver and on every executor"
        )
