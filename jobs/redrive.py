"""Moves dead letters back to their queue: ``python jobs/redrive.py orders-billing-DLQ --error Timeout``."""

import argparse

from spark_cursor_source.admin import DeadLetterFilter, instant_ms, redrive
from spark_cursor_source.errors import CursorqError

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("topic", help="of the dead letters")
parser.add_argument("--bootstrap-servers", help="default: as in --config-file, or localhost:9092")
parser.add_argument("--config-file", help="a properties file with what else the Kafka clients need")
parser.add_argument("--cursors-topic", default="__cursors", help="the tracker's: it notes what was redriven")
parser.add_argument("--reason", default=".*", help="only of this reason: max-deliveries, rejected or expired")
parser.add_argument("--error", default=".*", help="only where this regular expression is found in the error")
parser.add_argument("--since", type=instant_ms, help="only messages of this time or later")
parser.add_argument("--until", type=instant_ms, help="only messages before this time")
parser.add_argument("--rate", type=float, help="messages a second, at most")

if __name__ == "__main__":
    job = parser.parse_args()
    if "" in vars(job).values():  # of a variable that is not set; an empty pattern would select all
        parser.error("an argument is empty; give a value, or leave it out")
    named = {"bootstrap.servers": job.bootstrap_servers, "config.file": job.config_file}
    kafka = {name: value for name, value in named.items() if value} or {"bootstrap.servers": "localhost:9092"}
    try:
        chosen = DeadLetterFilter(since_ms=job.since, until_ms=job.until, reason=job.reason, error=job.error)
        print(redrive(kafka, job.topic, chosen, rate=job.rate, cursors_topic=job.cursors_topic))
    except CursorqError as error:
        parser.exit(1, f"redrive: {error}\n")
