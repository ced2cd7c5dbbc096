"""Waits of tests: for a condition, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

_FIRST_S, _LAST_S = 0.01, 0.2  # a look may ask brokers, and others want the processor while this one waits
PATIENCE_S = 180.0  #: a busy machine needs so long for what takes a second, an idle one does not wait


def wait_until(
    condition: Callable[[], Any],
    what: str = "it did not come to be",
    *,
    timeout_s: float = PATIENCE_S,
    between: Callable[[], object] = lambda: None,
) -> Any:
    """Returns the first truthy answer of ``condition``, which is asked less often as time goes by.

    ``between`` runs after each other answer, and may raise.

    >>> wait_until(iter([None, 0, "three"]).__next__)
    'three'
    """
    began = time.monotonic()
    while not (answer := condition()):
        between()
        spent_s = time.monotonic() - began
        assert spent_s < timeout_s, f"not in {timeout_s:.0f} s: {what}"
        time.sleep(min(_LAST_S, max(_FIRST_S, spent_s / 10)))
    return answer
