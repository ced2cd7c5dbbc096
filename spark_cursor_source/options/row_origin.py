"""Source of the rows of a DataFrame: the source's options travel with the schema of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_cursor_source.core.subscription_type import SubscriptionType
from spark_cursor_source.errors import OptionsNotCarried, SinkOfAnotherSource
from spark_cursor_source.options.ack import AckOptions, check_settled_by_sink
from spark_cursor_source.options.kafka import CONFIG_FILE
from spark_cursor_source.options.marker_format import MARKER_FORMAT, MarkerVersion
from spark_cursor_source.options.reader import KAFKA
from spark_cursor_source.options.source import AckMode, Ordering, SourceOptions

METADATA = "cursorq"  #: key in the metadata of the column that carries the options

# A schema is shown, logged and stored with the tables written from it, so no secret may be in this set.
_CARRIED = frozenset(
    {
        *("bootstrap.servers", "metadata.broker.list", CONFIG_FILE, "client.dns.lookup"),
        *("broker.address.family", "security.protocol", "ssl.ca.location", "oauth.provider"),
    }
)
_CHECKED = ("subscription", "markersTopic", MARKER_FORMAT)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOrigin:
    """Options of a source that its sink needs, by name, and the names of withheld options.

    >>> source = SourceOptions.parse({"kafka.bootstrap.servers": "b:9092", "kafka.sasl.password": "x",
    ...     "subscribe": "orders", "subscription": "billing"})
    >>> origin = RowOrigin.of(source)
    >>> origin.options["subscription"], origin.withheld
    ('billing', ('kafka.sasl.password',))
    >>> RowOrigin.from_metadata({METADATA: origin.to_metadata()}) == origin
    True
    """

    options: Mapping[str, str]
    withheld: tuple[str, ...] = ()  #: Kafka client options that must not be stored in a schema

    @classmethod
    def of(cls, source: SourceOptions) -> RowOrigin:
        """Return the origin that the rows of this source carry."""
        options = {KAFKA + name: value for name, value in source.kafka.items() if name in _CARRIED}
        options |= {
            "subscription": source.subscription,
            "markersTopic": source.markers_topic,
            MARKER_FORMAT: source.marker_version.value,
            "ackMode": source.ack_mode.value,
            "leaseTimeout": f"{source.lease_ms}ms",
            "subscriptionType": source.subscription_type.value,
        }
        if source.ordering is not Ordering.NONE:
            options["ordering"] = source.ordering.value
        if source.marker_version is MarkerVersion.V2:
            options["cursorsTopic"] = source.cursors_topic
        withheld = tuple(sorted(KAFKA + name for name in source.kafka if name not in _CARRIED))
        return cls(options=options, withheld=withheld)

    def to_metadata(self) -> dict[str, Any]:
        """Return texts and lists of texts, which the metadata of a Spark column can hold."""
        return dict(self.options) | ({"withheld": list(self.withheld)} if self.withheld else {})

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> RowOrigin | None:
        """Read the origin from a column's metadata. Return None if the metadata name no source."""
        found = metadata.get(METADATA)
        if not isinstance(found, Mapping) or not all(isinstance(found.get(name), str) for name in _CHECKED):
            return None
        options = {name: value for name, value in found.items() if isinstance(value, str)}
        return cls(options=options, withheld=tuple(found.get("withheld") or ()))

    def sink_options(self) -> Mapping[str, str]:
        """Return the options for a sink that was given none.

        Raises:
            OptionsNotCarried: the source has options that its rows do not carry.
        """
        if self.withheld:
            raise OptionsNotCarried(self.withheld)
        return self.options

    @property
    def subscription_type(self) -> SubscriptionType:
        """The subscription type of the source. Rows of earlier versions do not carry it."""
        return SubscriptionType(self.options.get("subscriptionType", SubscriptionType.EXCLUSIVE))

    @property
    def ordering(self) -> Ordering:
        """The ordering of the source. Rows of earlier versions do not carry it."""
        return Ordering(self.options.get("ordering", Ordering.NONE))

    @property
    def ack_mode(self) -> AckMode:
        """The ack mode of the source. Rows of early versions do not carry it."""
        return AckMode(self.options.get("ackMode", AckMode.INDIVIDUAL))

    def difference(self, other: RowOrigin) -> tuple[str, str, str] | None:
        """Return an option for sinks that has another value in the other origin, with both values."""
        others = other._taken()
        return next(
            ((name, own, others[name]) for name, own in self._taken().items() if own != others[name]), None
        )

    def _taken(self) -> dict[str, str]:
        taken = {name: self.options[name] for name in _CHECKED}
        kinds = {"subscriptionType": self.subscription_type, "ordering": self.ordering}
        return taken | {"ackMode": self.ack_mode.value} | {name: kind.value for name, kind in kinds.items()}

    def is_of(self, sink: AckOptions) -> bool:
        """True if acks with these options settle the leases of this source."""
        return self._difference(sink) is None

    def check(self, sink: AckOptions) -> None:
        """Check that the acks of a sink settle the leases of this source.

        Raises:
            SinkOfAnotherSource: the sink names another subscription, markers topic or marker format.
            AckedBySource: the source acks all its messages itself.
        """
        difference = self._difference(sink)
        if difference is not None:
            raise SinkOfAnotherSource(*difference)
        check_settled_by_sink(self.ack_mode, sink.marker_version)

    def _difference(self, sink: AckOptions) -> tuple[str, str, str] | None:
        named = (sink.subscription, sink.markers_topic, sink.marker_version.value)
        for option, given in zip(_CHECKED, named, strict=True):
            if given != self.options[option]:
                return option, self.options[option], given
        return None
