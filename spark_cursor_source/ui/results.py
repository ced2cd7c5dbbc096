"""Results of actions by the id of their form: a form acts once, however often it arrives."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

MOST = 1_000  #: limit of results that are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Result of an action, in words."""

    heading: str
    told: str  #: a sentence about the result, or the text of the error
    failed: bool
    back: str  #: address of the page that the action began on


class Results:
    """Results of the latest forms. Thread-safe.

    A double click sends a form twice, and so does a reload. A second skip would drop more messages, and a
    second undo would take the first one back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._results: OrderedDict[str, Future[Result]] = OrderedDict()

    def once(self, form: str, act: Callable[[], Result]) -> Result:
        """Returns the result of a form. Only its first call acts; others at the same time wait for it."""
        with self._lock:
            earlier = self._results.get(form)
            result = self._results.setdefault(form, Future())
            if len(self._results) > MOST:
                self._results.popitem(last=False)
        if earlier is None:
            try:
                result.set_result(act())
            except BaseException as why:
                result.set_exception(why)
                raise
        return result.result()

    def of(self, form: str) -> Result | None:
        """Returns the result of a form that has acted; None: it is not known, or not any more."""
        with self._lock:
            result = self._results.get(form)
        return None if result is None or not result.done() or result.exception() else result.result()
