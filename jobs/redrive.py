"""Moves dead letters back to their queue: ``python jobs/redrive.py orders-billing-DLQ --error Timeout``."""

import argparse
import sys

from spark_cursor_source.admin import DeadLetterFilter, instant_ms, redrive
from spark_cursor_source.errors import CursorqError

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("topic", help="of the dead letters")
parser.add_argument("--bootstrap-servers", help="default: as in --config-file, or localhost:9092")
parser.add_argument("--config-file", help="a properties file with what else the Kafka clients need")
parser.add_argument("--cursors-topic", default="__cursors", help="the tracker's: it notes what was redriven")
parser.add_argument("--reason", default="", help="only of this reason: max-deliveries, rejected or expired")
parser.add_argument("--error", default="", help="only where this regular expression is found in the error")
parser.add_argument("--since", type=instant_ms, help="only messages of this time or later")
parser.add_argument("--until", type=instant_ms, help="only messages before this time")
parser.add_argument("--rate", type=float, help="messages a second, at most")

if __name__ == "__main__":
    given = parser.parse_args()
    only = {"since_ms": given.since, "until_ms": given.until, "reason": given.reason, "error": given.error}
    try:
        chosen, more = DeadLetterFilter(**only), {"rate": given.rate, "cursors_topic": given.cursors_topic}
        named = {"bootstrap.servers": given.bootstrap_servers, "config.file": given.config_file}
        kafka = {name: value for name, value in named.items() if value}
        print(redrive(kafka or {"bootstrap.servers": "localhost:9092"}, given.topic, chosen, **more))
    except CursorqError as error:
        sys.exit(f"redrive: {error}")
