"""Plans of actions of the page, and the questions before them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_cursor_source.core.move_preview import MovePreview

Fields = Mapping[str, str]  #: of a query or of a form


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An action before it is done."""

    title: str
    told: str  #: what will happen, in sentences
    button: str
    fields: Fields  #: what the form sends
    moves: tuple[MovePreview, ...] = ()  #: effect by partition of an action that moves a subscription
    begins: tuple[MovePreview, ...] = ()  #: beginning by partition of a new subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of the values that a question offers, with a text field of its own where it needs a value."""

    value: str
    label: str
    field: str | None = None  #: name of the text field
    example: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextField:
    """Text field of a question."""

    name: str
    label: str
    example: str
    value: str = ""  #: what is in it at first
    required: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Question for what an action needs to know before its effect can be told."""

    title: str
    told: str
    fields: Fields  #: what is known
    choices: tuple[Choice, ...] = ()  #: one of them is chosen
    texts: tuple[TextField, ...] = ()
    partition: bool = False  #: the action may be limited to one partition
