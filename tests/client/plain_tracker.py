"""The tracker of :mod:`tests.kafka.tracker_thread`, under the name that it had."""

from tests.kafka.tracker_thread import PlainTracker as PlainTracker
