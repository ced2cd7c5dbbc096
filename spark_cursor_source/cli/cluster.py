"""Connection of a verb: from its options, the environment and a profile, in this order."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import typer

from spark_cursor_source.cli.profiles import read_profile
from spark_cursor_source.core.control_names import ControlNames
from spark_cursor_source.core.names import (
    DEFAULT_CURSORS_TOPIC,
    DEFAULT_MARKERS_TOPIC,
    DEFAULT_REDELIVERIES_TOPIC,
)
from spark_cursor_source.core.subscription_type import DEFAULT_GROUP_ID_PREFIX
from spark_cursor_source.kafka.config_file import read_properties_file
from spark_cursor_source.kafka.config_names import native_name
from spark_cursor_source.options.arguments import check_text
from spark_cursor_source.options.kafka import CONFIG_FILE, KafkaOptions

DEFAULT_SERVERS = "localhost:9092"
PANEL = "Connection"

_P = ParamSpec("_P")
_R = TypeVar("_R")
_SERVERS = "bootstrap.servers"
_KAFKA_VARIABLES = "CURSORQ_KAFKA_"


class _Shared(NamedTuple):
    """An option of every verb that talks to a cluster; its key in a profile is its name without dashes."""

    key: str
    help: str

    @property
    def parameter(self) -> str:
        return self.key.replace("-", "_")

    @property
    def variable(self) -> str:
        return f"CURSORQ_{self.parameter.upper()}"


_SHARED = (
    _Shared("bootstrap-servers", f"host:port,… (default: as in --config-file, or {DEFAULT_SERVERS})"),
    _Shared("config-file", "a properties file with what else the Kafka clients need, such as passwords"),
    _Shared("markers-topic", f"default: {DEFAULT_MARKERS_TOPIC}"),
    _Shared("redeliveries-topic", f"default: {DEFAULT_REDELIVERIES_TOPIC}"),
    _Shared("cursors-topic", f"default: {DEFAULT_CURSORS_TOPIC}"),
    _Shared("group-id-prefix", f"default: {DEFAULT_GROUP_ID_PREFIX}"),
)
_PROFILE = _Shared(
    "profile", "a profile of ~/.config/cursorq/config.toml (default: 'default' if it is there)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster(ControlNames):
    """A Kafka cluster with the names of its control topics."""

    kafka: KafkaOptions  #: options of the Kafka clients; the repr shows no values


def connected(verb: Callable[Concatenate[Cluster, _P], _R]) -> Callable[..., _R]:
    """Makes a verb of a function that begins with a ``Cluster``: adds the options that describe it.

    The function's other parameters stay options and arguments of the verb.
    """
    _, *own = inspect.signature(verb, eval_str=True).parameters.values()

    def run(**given: Any) -> _R:
        profile, more = given.pop(_PROFILE.parameter), given.pop("kafka")
        shared = {one.key: given.pop(one.parameter) for one in _SHARED}
        return verb(cluster_of(shared, more or (), profile), **given)  # type: ignore[call-arg]

    parameters = [*own, *_shared_parameters()]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    run.__name__, run.__doc__, run.__module__ = verb.__name__, verb.__doc__, verb.__module__
    return run


def cluster_of(
    given: Mapping[str, str | None], more: Sequence[str] = (), profile: str | None = None
) -> Cluster:
    """Returns the cluster of options by key, of ``more`` client options ``name=value``, and of a profile.

    Given values beat ``CURSORQ_…`` variables, which beat the profile. The options in a properties file beat
    those that stand lower than the name of the file.

    Raises:
        UnknownProfile, ProfileUnreadable
        InvalidArgument: UTF-8 has no bytes for a name or for the brokers.
        KafkaConfigFileUnreadable: the file must be read here to know what it beats.
    """
    if profile is None:
        profile = os.environ.get(_PROFILE.variable) or None
    known = read_profile(profile, [one.key for one in _SHARED])
    variables = {one.key: os.environ[one.variable] for one in _SHARED if os.environ.get(one.variable)}
    flags = {key: value for key, value in given.items() if value is not None}
    kafka = _merged(
        {name: str(value) for name, value in known.get("kafka", {}).items()} | _named(known),
        _of_environment() | _named(variables),
        _named(flags) | dict(_pair(one) for one in more),
    )
    if not kafka.keys() & {_SERVERS, CONFIG_FILE}:
        kafka[_SERVERS] = DEFAULT_SERVERS
    values = known | variables | flags
    names = {one.parameter: values[one.key] for one in _SHARED[2:] if one.key in values}
    for name, value in (names | {_SERVERS: kafka.get(_SERVERS, "")}).items():
        check_text(name, value)
    return Cluster(kafka=KafkaOptions(kafka), **names)


def _merged(*levels: Mapping[str, str]) -> dict[str, str]:
    """Merges client options, the lowest level first. What the chosen properties file sets is left to it."""
    lowered = [{name.lower(): value for name, value in level.items()} for level in levels]
    chosen = max((at for at, level in enumerate(lowered) if CONFIG_FILE in level), default=None)
    merged: dict[str, str] = {}
    for at, level in enumerate(lowered):
        if at == chosen and merged:
            in_file = {native_name(name) for name in read_properties_file(level[CONFIG_FILE])}
            merged = {name: value for name, value in merged.items() if native_name(name) not in in_file}
        merged |= level
    return merged


def _named(values: Mapping[str, Any]) -> dict[str, str]:
    """Returns the client options that have a key of their own."""
    keys = {option: option.replace(".", "-") for option in (_SERVERS, CONFIG_FILE)}
    return {option: values[key] for option, key in keys.items() if key in values}


def _of_environment() -> dict[str, str]:
    """Returns the client options of variables such as ``CURSORQ_KAFKA_SASL_PASSWORD``."""
    return {
        name.removeprefix(_KAFKA_VARIABLES).lower().replace("_", "."): value
        for name, value in os.environ.items()
        if name.startswith(_KAFKA_VARIABLES)
    }


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        # The text is not shown: it may be a secret.
        raise typer.BadParameter("it is not of the form NAME=VALUE", param_hint="'--kafka'")
    return name, value


def _shared_parameters() -> list[inspect.Parameter]:
    parameters = [_parameter(one) for one in _SHARED]
    many = typer.Option(
        "--kafka",
        metavar="NAME=VALUE",
        help=f"any other option of the Kafka clients, repeated; or as {_KAFKA_VARIABLES}SASL_USERNAME=…",
        rich_help_panel=PANEL,
    )
    kafka = inspect.Parameter(
        "kafka", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[list[str] | None, many]
    )
    return [*parameters[:2], kafka, *parameters[2:], _parameter(_PROFILE)]


def _parameter(one: _Shared) -> inspect.Parameter:
    option = typer.Option(
        f"--{one.key}",
        help=one.help,
        metavar=_metavar(one),
        rich_help_panel=PANEL,
    )
    annotation = Annotated[str | None, option]
    return inspect.Parameter(
        one.parameter, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _metavar(one: _Shared) -> str:
    return {"bootstrap-servers": "SERVERS", "config-file": "FILE", "group-id-prefix": "PREFIX"}.get(
        one.key, "NAME" if one is _PROFILE else "TOPIC"
    )
