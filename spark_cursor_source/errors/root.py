"""The base class of all errors: an error class declares its fields and the template of its message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, dataclass_transform


@dataclass_transform(eq_default=False)
class CursorqError(Exception):
    """Base class of all errors of this library: ``except CursorqError`` catches each of them.

    A subclass annotates its fields in the order of the constructor's parameters and sets ``template``, where
    ``{name}`` stands for a field or for a property. An error without fields is raised with its message.

    >>> class QueueFull(CursorqError):
    ...     topic: str
    ...     limit: int = 100
    ...     template = "topic '{topic}' is full with {limit} messages; ack some"
    >>> QueueFull("jobs")
    QueueFull('jobs', 100)
    >>> print(QueueFull(topic="jobs", limit=3))
    topic 'jobs' is full with 3 messages; ack some
    """

    template: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__annotations__:
            dataclass(eq=False, repr=False)(cls)

    def __post_init__(self) -> None:
        # Pickling and copying call the class with these arguments.
        super().__init__(*vars(self).values())

    def __str__(self) -> str:
        if not self.template:
            return super().__str__()
        return _with_single_periods(self.template.format_map(_Attributes(self)))


class _Attributes:
    """The attributes of an error, properties included, as ``str.format_map`` looks them up."""

    def __init__(self, error: CursorqError) -> None:
        self._error = error

    def __getitem__(self, name: str) -> object:
        return getattr(self._error, name)


def _with_single_periods(text: str) -> str:
    """Returns the text with one period after a cause: it is often a sentence of another error, with its own.

    >>> _with_single_periods("it failed: no broker answers.. Start one. It is in the directory ../logs")
    'it failed: no broker answers. Start one. It is in the directory ../logs'
    """
    first, *others = f"{text} ".split(".. ")
    for other in others:
        first += (". " if first[-1:].isalnum() else ".. ") + other
    return first[:-1]


def shown(value: object) -> str:
    """Shorten the ``repr`` of a value to 200 characters."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"


def sentence(text: str) -> str:
    """Returns the text as a sentence.

    >>> sentence("give a value"), sentence("did you mean 'topic'?")
    ('Give a value.', "Did you mean 'topic'?")
    """
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?")) else ".")


def _next_move(error: Any) -> str:
    return sentence(error.next_move)


#: property of an error with a field ``next_move``: the field as a sentence
next_move_sentence = property(_next_move)
