"""Declarations of options. The metadata of a dataclass field hold the option's key, default and meaning.

``read_options`` parses a whole class from its declarations. ``keys_of`` returns its keys. The reference pages
are generated from ``documented_of``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from spark_cursor_source.errors import MissingOption
from spark_cursor_source.options import kinds
from spark_cursor_source.options.kinds import Kind
from spark_cursor_source.options.reader import KAFKA, OptionReader

_DOCUMENTED, _READ = "cursorq.options", "cursorq.read"

ValueT = TypeVar("ValueT")
Reading = Callable[[OptionReader], Any]


@dataclass(frozen=True, slots=True)
class Option:
    """One key as the reference shows it.

    >>> Option("leaseTimeout", "time until a message is redelivered", default="60s").shown_default
    '`60s`'
    """

    name: str
    doc: str
    default: str | None = None  #: text that has the same effect as an absent option
    absent: str = ""  #: meaning of an absent option, where no text has the same effect

    @property
    def shown_default(self) -> str:
        return self.absent if self.default is None else f"`{self.default}`"


@overload
def option(name: str, kind: Kind[ValueT], *, default: str, doc: str) -> ValueT: ...
@overload
def option(name: str, kind: Kind[ValueT], *, default: None, absent: str = "", doc: str) -> ValueT | None: ...
def option(name: str, kind: Kind[Any], *, default: str | None, absent: str = "", doc: str) -> Any:
    """Declare a field with one option of its own. The default is the text that a user would write.

    >>> from spark_cursor_source.options.kinds import duration
    >>> @dataclass(frozen=True)
    ... class Leases:
    ...     lease_ms: int = option("leaseTimeout", duration(), default="60s", doc="time to a redelivery")
    >>> Leases(), read_options(Leases, OptionReader({"leaseTimeout": "5m"}, known=keys_of(Leases)))
    (Leases(lease_ms=60000), Leases(lease_ms=300000))
    """
    value = None if default is None else kind(name, default)
    documented = Option(name, doc, default, absent)
    return field(
        default=value,
        metadata=read_by(lambda reader: reader.value(name, kind, default=value), documented),
    )


def read_by(read: Reading, *options: Option) -> Mapping[str, Any]:
    """Return the metadata of a field that ``read`` computes from one or more options."""
    return documented(*options) | {_READ: read}


def documented(*options: Option) -> dict[str, Any]:
    """Return the metadata of a field with documented options. An empty name stands for the field's name."""
    return {_DOCUMENTED: options}


def required(name: str, kind: Kind[Any], *, next_move: str, doc: str) -> Mapping[str, Any]:
    """Return the metadata of a field without a default. ``next_move`` is for the error if it is absent."""

    def read(reader: OptionReader) -> Any:
        if (value := reader.value(name, kind, default=None)) is None:
            raise MissingOption(name, next_move)
        return value

    return read_by(read, Option(name, doc))


def same_option(declared_in: type, name: str) -> Any:
    """Declare a field with the option, the default and the meaning that it has in another class."""
    origin = _field(declared_in, name)
    return field(default=origin.default, repr=origin.repr, metadata=origin.metadata)


def read_options(parsed: type[ValueT], reader: OptionReader, **readings: Reading) -> ValueT:
    """Read all fields in the order of their declarations.

    ``readings``: how to read the fields that have no declaration.
    """
    fields = dataclasses.fields(parsed)  # type: ignore[arg-type]
    read = {field.name: readings.get(field.name) or field.metadata[_READ] for field in fields}
    return parsed(**{name: reading(reader) for name, reading in read.items()})


def read_option(declared_in: type, name: str, reader: OptionReader) -> Any:
    """Read one field."""
    return _field(declared_in, name).metadata[_READ](reader)


def documented_of(parsed: type) -> tuple[Option, ...]:
    """Return every declared option of a class, in the order of the fields."""
    return tuple(
        option if option.name else dataclasses.replace(option, name=field.name)
        for field in dataclasses.fields(parsed)
        for option in field.metadata.get(_DOCUMENTED, ())
    )


def keys_of(parsed: type, *, also: Collection[str] = ()) -> tuple[str, ...]:
    """Return the keys of a class and those of ``also``.

    They do not include ``kafka.*``, which every reader accepts.
    """
    own = (option.name for option in documented_of(parsed) if not option.name.startswith(KAFKA))
    return tuple(dict.fromkeys((*also, *own)))


def _field(declared_in: type, name: str) -> dataclasses.Field[Any]:
    return next(field for field in dataclasses.fields(declared_in) if field.name == name)


KAFKA_CLIENTS = read_by(
    OptionReader.brokers,
    Option("kafka.bootstrap.servers", "the brokers, `host:port,host:port`"),
    Option("kafka.*", "any other option of the Kafka clients, in Java's names or librdkafka's names"),
    Option("kafka.config.file", "a properties file with Kafka client options, for secrets"),
)
SUBSCRIPTION = required(
    "subscription",
    kinds.subscription,
    next_move="name this reader of the queue, such as billing",
    doc="name of this reader; each subscription has its own acks",
)
