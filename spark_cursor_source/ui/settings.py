"""Settings of the operator's page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_cursor_source.core.control_names import ControlNames
from spark_cursor_source.core.payload_decoder import PayloadDecoder
from spark_cursor_source.core.payload_mask import NO_MASK, PayloadMask


@dataclass(frozen=True, slots=True, kw_only=True)
class UiSettings(ControlNames):
    """Cluster, control topics and rights of one page."""

    kafka: Mapping[str, str] = field(repr=False)  #: options of the Kafka clients; may contain passwords
    #: token that each request needs; None: requests need none
    token: str | None = field(default=None, repr=False)
    allow_hosts: frozenset[str] = frozenset()  #: further names of this server in the Host header
    #: the page may change the state of the cluster; works with a token only
    allow_actions: bool = False
    mask: PayloadMask = NO_MASK  #: hides parts of the payloads
    decoder: PayloadDecoder | None = None  #: decodes values; None: they are shown as they are
    refresh_ms: int = 1_000  #: interval of the snapshots
    sample_ms: int = 10_000  #: interval of the points of a curve
