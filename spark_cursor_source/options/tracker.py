"""Options of the tracker, from a TOML file with nested tables or from a flat dict with dotted keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256

from spark_cursor_source.core.breaker import BreakerPolicy
from spark_cursor_source.core.marker import MAX_LEASE_MS
from spark_cursor_source.core.names import (
    DEFAULT_CURSORS_TOPIC,
    DEFAULT_MARKERS_TOPIC,
    DEFAULT_REDELIVERIES_TOPIC,
)
from spark_cursor_source.core.policy import (
    NO_BACKOFF,
    Backoff,
    ExpiredTo,
    ExponentialBackoff,
    RedeliveryPolicy,
    StepBackoff,
)
from spark_cursor_source.errors import ConflictingOptions, InvalidOption, MissingOption, UnknownOption
from spark_cursor_source.options.kafka import KafkaOptions
from spark_cursor_source.options.reader import (
    OptionReader,
    check_distinct,
    check_duration,
    check_subscription,
    parse_integer,
    unknown_option,
)
from spark_cursor_source.options.reappend import REAPPEND_OPTIONS, ReappendOptions

POLICY_OPTIONS = (
    "maxDeliveries",
    "backoff",
    "backoff.min",
    "backoff.max",
    "backoff.multiplier",
    "backoffJitter",
    "deadLetterTopic",
    "messageTtl",
    "expiredTo",
    "breaker",
    "breakerPause",
)
TRACKER_OPTIONS = (
    *POLICY_OPTIONS,
    "checkpointLocation",
    "trigger",
    "maxMarkersPerTrigger",
    "takeOver",
    *REAPPEND_OPTIONS,
    "markersTopic",
    "redeliveriesTopic",
    "cursorsTopic",
)
DEFAULT_TRIGGER_MS = 1_000
DEFAULT_MAX_MARKERS = 200_000
#: for V1 and kmq markers, which describe one message each and are far smaller
DEFAULT_MAX_MARKERS_OF_ONE = 2_000_000
RULES = 1  #: increase this when the same markers would lead to other decisions
DEFAULT_MULTIPLIER = 2.0

NONE = "none"

_DEFAULT_POLICY = RedeliveryPolicy()
_SUBSCRIPTIONS = "subscriptions."


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

    #: Kafka client settings without the prefix (options kafka.*, kafka.config.file as config.file).
    kafka: KafkaOptions = field(repr=False)
    #: Directory where Spark keeps the tracker's state (option checkpointLocation).
    checkpoint_location: str
    #: Redelivery policy of subscriptions without an override. Default: five deliveries without backoff
    #: (options maxDeliveries, backoff, backoffJitter, deadLetterTopic, messageTtl, expiredTo, breaker,
    #: breakerPause).
    policy: RedeliveryPolicy = _DEFAULT_POLICY
    #: Overrides as (subscription, policy), sorted by subscription. Default: none
    #: (options subscriptions.<name>.maxDeliveries, .backoff and so on).
    subscription_policies: tuple[tuple[str, RedeliveryPolicy], ...] = ()
    #: Interval between batches in ms. Default: 1 s (option trigger).
    trigger_ms: int = DEFAULT_TRIGGER_MS
    #: Maximum number of markers in a batch. It bounds the read of a backlog. Default: 200,000, or 2,000,000
    #: with queueTopic (option maxMarkersPerTrigger).
    max_markers_per_trigger: int = DEFAULT_MAX_MARKERS
    #: Replaces a tracker that used another checkpoint and rebuilds the state from the cursors.
    #: Default: false (option takeOver).
    take_over: bool = False
    #: Redelivery by append for consumers of kafka-mq-go or kmq. Default: None, redelivery by reference
    #: (options redelivery, markerFormat, queueTopic).
    reappend: ReappendOptions | None = None
    #: Topic of the markers, Starts and Ends. Default: __cursorq_markers (option markersTopic).
    markers_topic: str = DEFAULT_MARKERS_TOPIC
    #: Topic of redelivery announcements. Default: __cursorq_redeliveries (option redeliveriesTopic).
    redeliveries_topic: str = DEFAULT_REDELIVERIES_TOPIC
    #: Topic of the cursors. Default: __cursors (option cursorsTopic).
    cursors_topic: str = DEFAULT_CURSORS_TOPIC

    @classmethod
    def parse(cls, options: Mapping[str, object]) -> TrackerOptions:
        """Parse the options of a TOML file or a dict. An unknown option is an error, also in an override."""
        flat = _unique(_flatten("", options))
        overrides, own = _split_overrides(flat)
        reader = OptionReader(own, known=TRACKER_OPTIONS)
        if (checkpoint := reader.text("checkpointLocation")) is None:
            raise MissingOption("checkpointLocation", "name the directory where the tracker's state is kept")
        policy = _read_policy("", reader, _DEFAULT_POLICY)
        parsed = cls(
            kafka=reader.brokers(),
            checkpoint_location=checkpoint,
            policy=policy,
            subscription_policies=tuple(
                (name, _read_override(name, settings, policy)) for name, settings in sorted(overrides.items())
            ),
            trigger_ms=reader.duration_ms("trigger", default_ms=DEFAULT_TRIGGER_MS),
            max_markers_per_trigger=_read_max_markers(reader),
            take_over=reader.boolean("takeOver", default=False),
            reappend=ReappendOptions.read(reader),
            markers_topic=reader.topic("markersTopic", default=DEFAULT_MARKERS_TOPIC),
            redeliveries_topic=reader.topic("redeliveriesTopic", default=DEFAULT_REDELIVERIES_TOPIC),
            cursors_topic=reader.topic("cursorsTopic", default=DEFAULT_CURSORS_TOPIC),
        )
        parsed._check_topics()
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
        }
        check_distinct(control | {"deadLetterTopic": self.policy.dead_letter_topic})
        if self.reappend is not None:
            appended = {"queueTopic": self.reappend.queue_topic}
            check_distinct(control | appended | {"deadLetterTopic": self.reappend.dead_letter_topic})
        for name, policy in self.subscription_policies:
            check_distinct(control | {f"{_SUBSCRIPTIONS}{name}.deadLetterTopic": policy.dead_letter_topic})


def _read_max_markers(reader: OptionReader) -> int:
    if (given := reader.integer("maxMarkersPerTrigger")) is not None:
        return given
    return DEFAULT_MAX_MARKERS_OF_ONE if reader.given("queueTopic") else DEFAULT_MAX_MARKERS


def _flatten(prefix: str, table: Mapping[str, object]) -> Iterable[tuple[str, object]]:
    for key, value in table.items():
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
        raise InvalidOption(key, value, "it is no list of durations", 'write it like ["1s", "10s"]')
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
        name = check_subscription(key, dotted[: -len(setting) - 1])
        if setting in overrides.setdefault(name, {}):
            raise ConflictingOptions((key,), "given twice in different cases", "give it once")
        overrides[name][setting] = value
    return overrides, own


def _read_override(name: str, settings: Mapping[str, object], base: RedeliveryPolicy) -> RedeliveryPolicy:
    prefix = f"{_SUBSCRIPTIONS}{name}."
    known = [prefix + setting for setting in POLICY_OPTIONS]
    reader = OptionReader({prefix + setting: value for setting, value in settings.items()}, known=known)
    return _read_policy(prefix, reader, base)


def _read_policy(prefix: str, reader: OptionReader, base: RedeliveryPolicy) -> RedeliveryPolicy:
    max_deliveries = base.max_deliveries
    if (given := reader.integer(f"{prefix}maxDeliveries", least=0)) is not None:
        max_deliveries = given if given > 0 else None
    jitter = reader.decimal(f"{prefix}backoffJitter", least=0.0, most=1.0)
    return RedeliveryPolicy(
        max_deliveries=max_deliveries,
        backoff=_read_backoff(f"{prefix}backoff", reader, base.backoff),
        jitter=base.jitter if jitter is None else jitter,
        dead_letter_topic=reader.dead_letter_template(
            f"{prefix}deadLetterTopic", default=base.dead_letter_topic
        ),
        message_ttl_ms=_read_limit(f"{prefix}messageTtl", reader, base.message_ttl_ms),
        expired_to=reader.choice(f"{prefix}expiredTo", ExpiredTo, default=base.expired_to),
        breaker=_read_breaker(f"{prefix}breaker", reader, base.breaker),
    )


def _read_limit(option: str, reader: OptionReader, default_ms: int | None) -> int | None:
    """Read a duration of at least one second, or ``none``."""
    value = reader.text(option)
    if value is None:
        return default_ms
    return None if value.strip().lower() == NONE else check_duration(option, value, least_ms=1_000)


def _read_breaker(option: str, reader: OptionReader, base: BreakerPolicy) -> BreakerPolicy:
    pause_ms = _read_limit(f"{option}Pause", reader, base.pause_ms)
    rate = reader.text(option)
    if rate is None:
        return replace(base, pause_ms=pause_ms)
    if rate.strip().lower() == NONE:
        return BreakerPolicy(pause_ms=pause_ms)
    limit, stroke, window = rate.partition("/")
    if not stroke:
        raise InvalidOption(option, rate, "it is no rate", "write it like 100/1m, or none")
    return BreakerPolicy(
        limit=parse_integer(option, limit.strip(), least=1),
        window_ms=check_duration(option, window.strip(), least_ms=1_000),
        pause_ms=pause_ms,
    )


def _read_backoff(option: str, reader: OptionReader, default: Backoff) -> Backoff:
    steps = reader.text(option)
    table = tuple(f"{option}.{part}" for part in ("min", "max", "multiplier"))
    given = tuple(part for part in table if reader.given(part))
    if steps is not None and given:
        raise ConflictingOptions((option, *given), "a list and a table of one backoff", "give one of the two")
    if given:
        return _read_exponential(option, reader)
    if steps is None:
        return default
    if steps.strip().lower() == NONE:
        return NO_BACKOFF
    delays = (check_duration(option, step.strip(), most_ms=MAX_LEASE_MS) for step in steps.split(","))
    return StepBackoff(delays_ms=tuple(delays))


def _read_exponential(option: str, reader: OptionReader) -> ExponentialBackoff:
    for part in (f"{option}.min", f"{option}.max"):
        if reader.text(part) is None:
            raise MissingOption(part, f"give {option}.min and {option}.max, such as 1s and 1m")
    min_ms = reader.duration_ms(f"{option}.min", default_ms=0, most_ms=MAX_LEASE_MS)
    max_ms = reader.duration_ms(f"{option}.max", default_ms=0, most_ms=MAX_LEASE_MS)
    if min_ms > max_ms:
        raise ConflictingOptions((f"{option}.min", f"{option}.max"), "min is above max", "swap them")
    multiplier = reader.decimal(f"{option}.multiplier", least=1.0, most=1_000_000.0)
    if multiplier is None:
        multiplier = DEFAULT_MULTIPLIER
    return ExponentialBackoff(min_ms=min_ms, max_ms=max_ms, multiplier=multiplier)
