"""Sends example orders to a topic: ``python jobs/produce.py --topic orders --messages 1000``."""

import argparse
import json

from spark_cursor_source.devkit import ensure_topic, send_messages

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--bootstrap-servers", default="localhost:9092")
parser.add_argument("--topic", default="orders")
parser.add_argument("--messages", type=int, default=1_000)
parser.add_argument("--partitions", type=int, default=8, help="of the topic, if it is not there yet")


def orders(count):
    """Yields orders of 50 customers. Every hundredth order has a negative amount, and some are large."""
    for number in range(count):
        amount = -1 if number % 100 == 99 else number * 37 % 1_000
        yield f"customer-{number % 50}".encode(), json.dumps({"order": number, "amount": amount}).encode()


if __name__ == "__main__":
    given = parser.parse_args()
    kafka = {"bootstrap.servers": given.bootstrap_servers}
    ensure_topic(kafka, given.topic, partitions=given.partitions)
    print(send_messages(kafka, given.topic, orders(given.messages)), "messages are in topic", given.topic)
