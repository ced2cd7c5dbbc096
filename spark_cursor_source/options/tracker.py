"""Options of the tracker, from a TOML file with nested tables or from a flat dict with dotted keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256

from spark_cursor_source.core.breaker import BreakerPolicy
from spark_cursor_source.core.marker import MAX_LEASE_MS
from spark_cursor_source.core.names import DEFAULT_DEAD_LETTER_TOPIC, DEFAULT_RESCUE_TOPIC
from spark_cursor_source.core.policy import (
    NO_BACKOFF,
    Backoff,
    ExpiredTo,
    ExponentialBackoff,
    RedeliveryPolicy,
    StepBackoff,
)
from spark_cursor_source.errors import ConflictingOptions, InvalidOption, MissingOption, UnknownOption
from spark_cursor_source.options import kinds
from spark_cursor_source.options.declare import (
    KAFKA_CLIENTS,
    Option,
    Reading,
    keys_of,
    option,
    read_by,
    read_options,
    required,
    same_option,
)
from spark_cursor_source.options.kafka import KafkaOptions
from spark_cursor_source.options.reader import OptionReader, check_distinct, unknown_option
from spark_cursor_source.options.reappend import REAPPEND, ReappendOptions
from spark_cursor_source.options.source import LEAST_SESSION_MS, MOST_SESSION_MS, SourceOptions

POLICY = (
    Option(
        "maxDeliveries",
        "deliveries that a message gets before it is a dead letter; `0`: no limit",
        default="5",
    ),
    Option("backoff", "wait before a message comes back; at most 12h", absent="none"),
    Option("backoff.min", "of a growing backoff: the first wait"),
    Option("backoff.max", "of a growing backoff: the longest wait"),
    Option("backoff.multiplier", "of a growing backoff: the factor from one wait to the next", default="2"),
    Option("backoffJitter", "largest part (0 to 1) by which that wait is shortened at random", default="0"),
    Option(
        "deadLetterTopic",
        "template of the names of the dead-letter topics",
        default=DEFAULT_DEAD_LETTER_TOPIC,
    ),
    Option("messageTtl", "messages that are older expire; 1s or more", absent="none"),
    Option("expiredTo", "or `dead-letters`: expired messages are copied there first", default="drop"),
    Option(
        "breaker",
        "a rate such as `100/1m`; with more dead letters in that time, the breaker opens",
        absent="none",
    ),
    Option("breakerPause", "how long the breaker stays open; `none`: until you close it", default="10m"),
)
POLICY_OPTIONS = tuple(option.name for option in POLICY)
DEFAULT_MAX_MARKERS = 200_000
#: for V1 and kmq markers, which describe one message each and are far smaller
DEFAULT_MAX_MARKERS_OF_ONE = 2_000_000
RULES = 4  #: increase this when the same markers would lead to other decisions
DEFAULT_MULTIPLIER = 2.0
STANDALONE_MS = 50  #: least time from one batch to the next of a tracker without Spark

NONE = "none"

_DEFAULT_POLICY = RedeliveryPolicy()
_SUBSCRIPTIONS = "subscriptions."


def _read_max_markers(reader: OptionReader) -> int:
    default = DEFAULT_MAX_MARKERS_OF_ONE if reader.given("queueTopic") else DEFAULT_MAX_MARKERS
    return reader.value("maxMarkersPerTrigger", kinds.integer(), default=default)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerOptions:
    """Options of a tracker.

    >>> options = TrackerOptions.parse({
    ...     "checkpointLocation": "cp", "kafka": {"bootstrap": {"servers": "b:9092"}},
    ...     "backoff": ["1s", "10s"],
    ...     "subscriptions": {"billing": {"maxDeliveries": 3}},
    ... })
    >>> options.policy_for("billing").max_deliveries, options.policy_for("shipping").max_deliveries
    (3, 5)
    >>> options.policy_for("billing").backoff
    StepBackoff(delays_ms=(1000, 10000))
    """

    checkpoint_location: str = field(
        metadata=required(
            "checkpointLocation",
            kinds.text,
            next_move="name the directory where the tracker's state is kept",
            doc="where Spark keeps the tracker's state; use storage that survives the machine",
        )
    )
    #: Policy of subscriptions without an override.
    policy: RedeliveryPolicy = field(
        default=_DEFAULT_POLICY,
        metadata=read_by(lambda reader: _read_policy("", reader, _DEFAULT_POLICY), *POLICY),
    )
    #: Kafka client settings without the prefix ``kafka.``.
    kafka: KafkaOptions = field(repr=False, metadata=KAFKA_CLIENTS)
    #: Overrides as (subscription, policy), sorted by subscription
    #: (options subscriptions.<name>.maxDeliveries, .backoff and so on).
    subscription_policies: tuple[tuple[str, RedeliveryPolicy], ...] = ()
    #: None: the query ends when it has done what there is to do.
    trigger_ms: int | None = option(
        "trigger",
        kinds.trigger,
        default="1s",
        doc="least time from one batch to the next, or `availableNow`; a tracker without Spark has `50ms` "
        "unless it is given",
    )
    max_markers_per_trigger: int = field(
        default=DEFAULT_MAX_MARKERS,
        metadata=read_by(
            _read_max_markers,
            Option(
                "maxMarkersPerTrigger",
                "most markers in a batch; `2000000` with `redelivery=reappend`",
                default="200000",
            ),
        ),
    )
    take_over: bool = option(
        "takeOver", kinds.boolean, default="false", doc="take over from a tracker whose checkpoint is lost"
    )
    session_ms: int = option(
        "sessionTimeout",
        kinds.duration(least_ms=LEAST_SESSION_MS, most_ms=MOST_SESSION_MS),
        default="10s",
        doc="a tracker without Spark that is silent for this time counts as dead; 1s to 30m",
    )
    #: None: redelivery by reference.
    reappend: ReappendOptions | None = field(default=None, metadata=read_by(ReappendOptions.read, *REAPPEND))
    rescue_before_ms: int | None = option(
        "rescueBefore",
        kinds.duration(least_ms=1_000),
        default=None,
        absent="off",
        doc="copy unacked messages to the rescue topic this long before retention deletes them; 1s or more",
    )
    rescue_max_bytes: int = option(
        "rescueMaxBytes",
        kinds.integer(),
        default=str(10 << 30),
        doc="most bytes of the copies; messages beyond it are not rescued, which is logged",
    )
    rescue_topic: str = option(
        "rescueTopic", kinds.topic, default=DEFAULT_RESCUE_TOPIC, doc="the copies of unacked messages"
    )
    markers_topic: str = same_option(SourceOptions, "markers_topic")
    redeliveries_topic: str = same_option(SourceOptions, "redeliveries_topic")
    cursors_topic: str = same_option(SourceOptions, "cursors_topic")

    @classmethod
    def parse(cls, options: Mapping[str, object]) -> TrackerOptions:
        """Parse the options of a TOML file or a dict. An unknown option is an error, also in an override."""
        return cls._parse(options)

    @classmethod
    def parse_standalone(cls, options: Mapping[str, object]) -> TrackerOptions:
        """Parse the options of a tracker without Spark, which needs no checkpoint and a shorter trigger."""
        return cls._parse(
            options,
            checkpoint_location=lambda reader: reader.text("checkpointLocation") or "",
            trigger_ms=lambda reader: reader.value("trigger", kinds.duration(), default=STANDALONE_MS),
        )

    @classmethod
    def _parse(cls, options: Mapping[str, object], **readings: Reading) -> TrackerOptions:
        overrides, own = _split_overrides(_unique(_flatten("", options)))

        def read_policies(reader: OptionReader) -> tuple[tuple[str, RedeliveryPolicy], ...]:
            return _read_overrides(overrides, base=_read_policy("", reader, _DEFAULT_POLICY))

        reader = OptionReader(own, known=TRACKER_OPTIONS)
        parsed = read_options(cls, reader, subscription_policies=read_policies, **readings)
        parsed._check_topics()
        parsed._check_rescue()
        return parsed

    def policy_for(self, subscription: str) -> RedeliveryPolicy:
        """Return the policy of a subscription. Settings without an override come from the general policy."""
        return dict(self.subscription_policies).get(subscription, self.policy)

    @property
    def policies_digest(self) -> str:
        """Short digest of the policies and the decision rules. It changes if either of them changes."""
        policies = (RULES, self.policy, self.subscription_policies, self.reappend)
        return sha256(repr(policies).encode()).hexdigest()[:8]

    def _check_topics(self) -> None:
        control = {
            "markersTopic": self.markers_topic,
            "redeliveriesTopic": self.redeliveries_topic,
            "cursorsTopic": self.cursors_topic,
            "rescueTopic": self.rescue_topic,
        }
        check_distinct(control | {"deadLetterTopic": self.policy.dead_letter_topic})
        if self.reappend is not None:
            appended = {"queueTopic": self.reappend.queue_topic}
            check_distinct(control | appended | {"deadLetterTopic": self.reappend.dead_letter_topic})
        for name, policy in self.subscription_policies:
            check_distinct(control | {f"{_SUBSCRIPTIONS}{name}.deadLetterTopic": policy.dead_letter_topic})

    def _check_rescue(self) -> None:
        if self.rescue_before_ms is not None and self.reappend is not None:
            raise ConflictingOptions(
                ("rescueBefore", "redelivery"),
                "markers V1 and of kmq have no cursors that tell which messages are not acked",
                "leave one of the two out",
            )


TRACKER_OPTIONS = keys_of(TrackerOptions)


def _flatten(prefix: str, table: Mapping[str, object]) -> Iterable[tuple[str, object]]:
    for key, value in kinds.items_of("options", table):
        if isinstance(value, Mapping):
            yield from _flatten(f"{prefix}{key}.", value)
        else:
            yield f"{prefix}{key}", _joined(f"{prefix}{key}", value)


def _unique(flat: Iterable[tuple[str, object]]) -> dict[str, object]:
    unique: dict[str, object] = {}
    for key, value in flat:
        # A table and a dotted key can name the same option. One value would then be lost silently.
        if key in unique:
            raise ConflictingOptions((key,), "given twice, in a table and as a dotted key", "give it once")
        unique[key] = value
    return unique


def _joined(key: str, value: object) -> object:
    if not isinstance(value, list | tuple) or key.lower().rpartition(".")[2] != "backoff":
        return value
    if not all(isinstance(delay, str) for delay in value):
        raise InvalidOption(key, value, "it is not a list of durations", 'write it like ["1s", "10s"]')
    return ",".join(value) if value else NONE


def _split_overrides(flat: Mapping[str, object]) -> tuple[dict[str, dict[str, object]], dict[str, object]]:
    """Split off the overrides, by subscription.

    Subscription names can hold dots, so the setting is a suffix.
    """
    overrides: dict[str, dict[str, object]] = {}
    own: dict[str, object] = {}
    for key, value in flat.items():
        if not key.lower().startswith(_SUBSCRIPTIONS):
            own[key] = value
            continue
        dotted = key[len(_SUBSCRIPTIONS) :]
        settings = sorted(POLICY_OPTIONS, key=len, reverse=True)
        setting = next((s for s in settings if dotted.lower().endswith("." + s.lower())), None)
        if setting is None:
            name, _, unknown = dotted.rpartition(".")
            nearest = unknown_option(unknown, POLICY_OPTIONS, {}).did_you_mean
            raise UnknownOption(key, nearest and f"{_SUBSCRIPTIONS}{name}.{nearest}")
        name = kinds.subscription(key, dotted[: -len(setting) - 1])
        if setting in overrides.setdefault(name, {}):
            raise ConflictingOptions((key,), "given twice in different cases", "give it once")
        overrides[name][setting] = value
    return overrides, own


def _read_overrides(
    overrides: Mapping[str, Mapping[str, object]], *, base: RedeliveryPolicy
) -> tuple[tuple[str, RedeliveryPolicy], ...]:
    return tuple((name, _read_override(name, settings, base)) for name, settings in sorted(overrides.items()))


def _read_override(name: str, settings: Mapping[str, object], base: RedeliveryPolicy) -> RedeliveryPolicy:
    prefix = f"{_SUBSCRIPTIONS}{name}."
    known = [prefix + setting for setting in POLICY_OPTIONS]
    reader = OptionReader({prefix + setting: value for setting, value in settings.items()}, known=known)
    return _read_policy(prefix, reader, base)


def _read_policy(prefix: str, reader: OptionReader, base: RedeliveryPolicy) -> RedeliveryPolicy:
    # A policy holds None for no limit, and a user writes 0.
    max_deliveries = reader.value(
        f"{prefix}maxDeliveries", kinds.integer(least=0), default=base.max_deliveries
    )
    return RedeliveryPolicy(
        max_deliveries=max_deliveries or None,
        jitter=reader.value(
            f"{prefix}backoffJitter", kinds.decimal(least=0.0, most=1.0), default=base.jitter
        ),
        backoff=_read_backoff(f"{prefix}backoff", reader, base.backoff),
        dead_letter_topic=reader.value(
            f"{prefix}deadLetterTopic", kinds.dead_letter_template, default=base.dead_letter_topic
        ),
        message_ttl_ms=reader.value(f"{prefix}messageTtl", _limit, default=base.message_ttl_ms),
        expired_to=reader.value(f"{prefix}expiredTo", kinds.choice(ExpiredTo), default=base.expired_to),
        breaker=_read_breaker(f"{prefix}breaker", reader, base.breaker),
    )


def _limit(option: str, text: str) -> int | None:
    """Return a duration of at least one second, or None for ``none``."""
    return None if text.strip().lower() == NONE else kinds.check_duration(option, text, least_ms=1_000)


def _read_breaker(option: str, reader: OptionReader, base: BreakerPolicy) -> BreakerPolicy:
    pause_ms = reader.value(f"{option}Pause", _limit, default=base.pause_ms)
    rate = reader.text(option)
    if rate is None:
        return replace(base, pause_ms=pause_ms)
    if rate.strip().lower() == NONE:
        return BreakerPolicy(pause_ms=pause_ms)
    limit, stroke, window = rate.partition("/")
    if not stroke:
        raise InvalidOption(option, rate, "it is not a rate", "write it like 100/1m, or none")
    return BreakerPolicy(
        limit=kinds.parse_integer(option, limit.strip(), least=1),
        window_ms=kinds.check_duration(option, window.strip(), least_ms=1_000),
        pause_ms=pause_ms,
    )


def _read_backoff(option: str, reader: OptionReader, default: Backoff) -> Backoff:
    steps = reader.text(option)
    table = tuple(f"{option}.{part}" for part in ("min", "max", "multiplier"))
    given = tuple(part for part in table if reader.given(part))
    if steps is not None and given:
        raise ConflictingOptions(
            (option, *given), "a list and a table set the same backoff", "give one of the two"
        )
    if given:
        return _read_exponential(option, reader)
    if steps is None:
        return default
    if steps.strip().lower() == NONE:
        return NO_BACKOFF
    delays = (kinds.check_duration(option, step.strip(), most_ms=MAX_LEASE_MS) for step in steps.split(","))
    return StepBackoff(delays_ms=tuple(delays))


def _read_exponential(option: str, reader: OptionReader) -> ExponentialBackoff:
    for part in (f"{option}.min", f"{option}.max"):
        if reader.text(part) is None:
            raise MissingOption(part, f"give {option}.min and {option}.max, such as 1s and 1m")
    wait = kinds.duration(most_ms=MAX_LEASE_MS)
    min_ms = reader.value(f"{option}.min", wait, default=0)
    max_ms = reader.value(f"{option}.max", wait, default=0)
    if min_ms > max_ms:
        raise ConflictingOptions((f"{option}.min", f"{option}.max"), "min is above max", "swap them")
    factor = kinds.decimal(least=1.0, most=1_000_000.0)
    multiplier = reader.value(f"{option}.multiplier", factor, default=DEFAULT_MULTIPLIER)
    return ExponentialBackoff(min_ms=min_ms, max_ms=max_ms, multiplier=multiplier)
