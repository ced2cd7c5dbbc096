"""The version of the brokers of the tests: that of ``cursorq broker``, or the one in CURSORQ_TEST_KAFKA.

``python -m tests.kafka_version`` gets its jars, and shows the progress that pytest would hide.
"""

from __future__ import annotations

import os

from spark_cursor_source.devkit import runtime

IS_OTHER = "CURSORQ_TEST_KAFKA" in os.environ
if IS_OTHER:  # for the brokers of this process
    runtime.KAFKA_VERSION = os.environ["CURSORQ_TEST_KAFKA"]
    runtime.COORDINATE = f"org.apache.kafka:kafka_2.13:{runtime.KAFKA_VERSION}"

KAFKA = tuple(int(part) for part in runtime.KAFKA_VERSION.split("."))

if __name__ == "__main__":
    runtime.kafka_jars(print)
