"""Conversion of Kafka client options, with Java's names or librdkafka's, to librdkafka's names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, cast

from confluent_kafka import KafkaException, Producer

from spark_cursor_source.errors import ConflictingOptions, KafkaUnavailable, RefusedKafkaOption
from spark_cursor_source.kafka.config_file import read_properties_file
from spark_cursor_source.kafka.config_java import translate
from spark_cursor_source.kafka.config_names import (
    CONSUMER_ONLY,
    NOT_TEXT,
    PRODUCER_ONLY,
    REFUSED,
    REFUSED_PREFIXES,
    SUGGESTIBLE,
    TRANSLATED,
    is_secret,
    native_name,
)
from spark_cursor_source.kafka.interruptible import INTERRUPTIBLE
from spark_cursor_source.kafka.token_login import PROVIDER, with_login, with_token_callback
from spark_cursor_source.options.kafka import CONFIG_FILE, KafkaOptions
from spark_cursor_source.options.reader import check_brokers

Role = Literal["consumer", "producer", "admin"]
ClientT = TypeVar("ClientT")

_LOG_LEVEL = "2"  # syslog level: critical

_NOT_READ: dict[Role, frozenset[str]] = {
    "consumer": PRODUCER_ONLY,
    "producer": CONSUMER_ONLY,
    "admin": CONSUMER_ONLY | PRODUCER_ONLY,
}


def client_config(kafka: Mapping[str, str], role: Role = "consumer") -> dict[str, str]:
    """Return the configuration of one client, without options that its role does not read.

    If ``config.file`` is given, the file is read here, on the machine that opens the client. Options override
    the file. ``kafka.config_roles`` adds the settings of the client.
    """
    given = _with_file(kafka)
    check_brokers(KafkaOptions(given))
    java: dict[str, str] = {}
    native: dict[str, str] = {}
    for name, value in given.items():
        _check_allowed(name, value)
        _check_known(name, value)
        if name in TRANSLATED or name == "ssl.keystore.location":
            java[name] = value
        else:
            native[name] = _to_native(name, value)
    native = with_login(native | translate(java, native))
    _check_promises(native)
    return {name: value for name, value in native.items() if name not in _NOT_READ[role]}


def open_client(make: Callable[[dict[str, Any]], ClientT], config: Mapping[str, Any]) -> ClientT:
    """Return ``make(config)``, for example ``open_client(Consumer, config)``.

    A refusal by librdkafka becomes RefusedKafkaOption. A token provider is imported here. If it makes no
    token in ten seconds, the error is KafkaUnavailable.

    librdkafka's own messages on stderr are limited to critical ones, because the errors of this library hold
    the reason of a failed call. ``kafka.log_level`` shows them again. Ctrl-C ends the calls of a Producer,
    Consumer or AdminClient.
    """
    made: Any = INTERRUPTIBLE.get(make, make)
    given = with_token_callback(quiet(config))
    try:
        client = cast("ClientT", made(given))
    except KafkaException as refusal:
        text = _message(refusal)
        if "oauth_cb" in given and "oauth token" in text.lower():
            # the provider has failed for the ten seconds that confluent-kafka waits for a first token
            login = f"login with the provider {config[PROVIDER]}"
            raise KafkaUnavailable(login, 10_000, "no token was made, see the log") from None
        named = re.search(r'property "([^"]*)"|: ([a-z0-9._]+) failed:', text)
        option = (named.group(1) or named.group(2)) if named else "*"
        # "from None": librdkafka quotes option values, and a chained traceback could show a secret one.
        raise RefusedKafkaOption(option, _scrubbed(text, option, config), "correct it") from None
    if "oauth_cb" in given:
        client.poll(0)  # type: ignore[attr-defined]  # clients before 2.13 ask for their first token here
    return client


def quiet(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with librdkafka's own messages limited to critical ones, unless overridden."""
    return {"log_level": _LOG_LEVEL, **config}


def _with_file(kafka: Mapping[str, str]) -> dict[str, str]:
    options = _renamed(KafkaOptions(kafka))
    path = options.pop(CONFIG_FILE, None)
    if path is None:
        return options
    return _renamed(read_properties_file(path)) | options


def _renamed(options: Mapping[str, str]) -> dict[str, str]:
    renamed: dict[str, tuple[str, str]] = {}
    for option, value in options.items():
        given, name = option.lower(), native_name(option)
        origin, before = renamed.setdefault(name, (given, value))
        if before != value:
            both = (f"kafka.{origin}", f"kafka.{given}")
            raise ConflictingOptions(
                both, "both set the same property, with different values", f"give kafka.{name} alone"
            )
    return {name: value for name, (_, value) in renamed.items()}


def _check_allowed(name: str, value: str) -> None:
    refusal = REFUSED.get(name) or next(
        (refused for prefix, refused in REFUSED_PREFIXES.items() if name.startswith(prefix)), None
    )
    if refusal is not None:
        raise RefusedKafkaOption(name, *refusal)
    if name in NOT_TEXT or name.endswith("_cb"):
        raise RefusedKafkaOption(name, "it needs an object, and options are texts", "leave it out")


def _check_known(name: str, value: str) -> None:
    if name in SUGGESTIBLE or _librdkafka_knows(name, value):
        return
    nearest = difflib.get_close_matches(name, sorted(SUGGESTIBLE), n=1)
    next_move = f"did you mean 'kafka.{nearest[0]}'?" if nearest else "see librdkafka's CONFIGURATION.md"
    raise RefusedKafkaOption(name, "no Kafka client has this property", next_move)


def _librdkafka_knows(name: str, value: str) -> bool:
    # A newer librdkafka can have options that are not listed here. A client without brokers tests that.
    try:
        Producer({name: value, "log_level": "0"})
    except KafkaException as refusal:
        return not _message(refusal).startswith("No such configuration property")
    except (TypeError, ValueError):
        return False
    return True


def _to_native(name: str, value: str) -> str:
    if name == "ssl.endpoint.identification.algorithm" and not value.strip():
        return "none"  # Java disables the check with an empty text
    return value


def _check_promises(native: Mapping[str, str]) -> None:
    if native.get("enable.idempotence", "true").lower() != "true":
        why = "markers sent twice or out of order would be wrong acks"
        raise RefusedKafkaOption("enable.idempotence", why, "leave it out")
    if native.get("acks", "all").lower() not in ("all", "-1"):
        why = "an ack is durable only when every in-sync replica has it"
        raise RefusedKafkaOption("acks", why, "leave it out, or give all")


def _message(refusal: KafkaException) -> str:
    return str(refusal.args[0].str()) if refusal.args else ""


def _scrubbed(text: str, option: str, config: Mapping[str, Any]) -> str:
    secrets = [
        value for name, value in config.items() if isinstance(value, str) and value and is_secret(name)
    ]
    if (option != "*" and is_secret(option)) or any(secret in text for secret in secrets):
        return "librdkafka refuses its value"
    return f"librdkafka refuses it ({text.strip()})"
