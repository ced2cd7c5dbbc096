"""Place of the tracker of a query or client (option tracker)."""

from __future__ import annotations

import enum


class TrackerPlace(enum.StrEnum):
    """Place where the tracker runs."""

    EXTERNAL = "external"  #: in its own process: the Spark query, or ``cursorq tracker``
    EMBEDDED = "embedded"  #: also in this process, as one of those that share the markers partitions
