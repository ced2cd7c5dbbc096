"""Findings of the doctor."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

ERROR, WARNING, INFO = "error", "warning", "info"  #: severities, the worst first


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fact that needs an action."""

    #: ``error`` if messages are lost or stand still, ``warning`` if they may be soon, ``info`` if it may be
    #: intended
    severity: str
    check: str  #: topics, settings, replication, rights, versions, tracker, retention, clock or subscriptions
    what: str  #: what is wrong, in a sentence
    evidence: str  #: the values that were found
    cure: str  #: a command, or the next step in words; empty: none is needed

    def to_json(self) -> str:
        """Returns the finding as a JSON object."""
        return json.dumps(asdict(self))

    def __str__(self) -> str:
        return f"{self.severity}: {self.what} ({self.evidence})" + (f"; {self.cure}" if self.cure else "")
