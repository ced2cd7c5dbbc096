"""The ``cursorq`` command: parse, make one call, print. The only module of the package that prints.

A subcommand is a function that adds its parser and sets ``run`` on it, listed in ``SUBCOMMANDS``.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spark_cursor_source.core.topic_names import DEFAULT_CURSORS_TOPIC, DEFAULT_MARKERS_TOPIC
from spark_cursor_source.errors import CursorqError

LEAST_MESSAGES = 1_000  #: in a demo: one of every kind

if TYPE_CHECKING:
    Subcommands = argparse._SubParsersAction[argparse.ArgumentParser]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0 when it did its work, 1 on an error of ours (told on stderr), 2 on wrong usage."""
    parser = argparse.ArgumentParser(prog="cursorq", description="Individual-ack queues on Kafka for Spark.")
    subcommands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in SUBCOMMANDS:
        add(subcommands)
    arguments = parser.parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return run(arguments)
    except CursorqError as error:
        print(f"cursorq: {error}", file=sys.stderr)
        return 1


def _add_broker(subcommands: Subcommands) -> None:
    parser = subcommands.add_parser(
        "broker",
        help="run a development Kafka broker until Ctrl-C",
        description="Run a single Apache Kafka broker on loopback until Ctrl-C or SIGTERM. "
        "Prints its bootstrap servers once it answers.",
    )
    parser.add_argument("--port", type=int, help="port on 127.0.0.1 (default: a free one)")
    parser.add_argument("--data-dir", type=Path, help="keep the data here (default: removed at the end)")
    parser.add_argument("--prepare", action="store_true", help="only download what a broker needs")
    parser.set_defaults(run=_broker)


def _broker(arguments: argparse.Namespace) -> int:
    from spark_cursor_source.embedded import EmbeddedKafka

    broker = EmbeddedKafka(port=arguments.port, data_dir=arguments.data_dir)
    if arguments.prepare:
        broker.prepare()
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with broker:
            print(f"bootstrap servers: {broker.bootstrap_servers}", flush=True)
            broker.wait()
            print(f"cursorq: the broker ended by itself; its log says:\n{broker.log_tail()}", file=sys.stderr)
            return 1
    except KeyboardInterrupt:
        return 0


def _add_demo(subcommands: Subcommands) -> None:
    parser = subcommands.add_parser(
        "demo",
        help="broker, messages, consumer, tracker, a crash: a live table and a verdict",
        description="Start a broker, produce messages, run a tracker and a consumer whose handler fails on "
        "some of them, kill the consumer in the middle, and show what becomes of each message. Takes about "
        "a minute; exits with 1 if a message was lost or a duplicate has no reason.",
    )
    parser.add_argument("--messages", type=_messages, default=20_000, metavar="N", help="default: 20000")
    parser.add_argument("--time-limit", type=float, default=105.0, metavar="S", help="seconds, default: 105")
    parser.add_argument(
        "--keep",
        type=_new_directory,
        metavar="DIR",
        help="leave logs, checkpoints and data in this new directory",
    )
    parser.set_defaults(run=_demo)


def _messages(text: str) -> int:
    if not text.isdecimal() or int(text) < LEAST_MESSAGES:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of at least {LEAST_MESSAGES}")
    return int(text)


def _new_directory(text: str) -> Path:
    if Path(text).exists():
        raise argparse.ArgumentTypeError(f"{text!r} is there already; name a new directory")
    return Path(text)


def _demo(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from spark_cursor_source.demo.run import demo
    from spark_cursor_source.demo.scenario import Scenario

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        scenario = Scenario(messages=arguments.messages, time_limit_s=arguments.time_limit)
        return demo(scenario, Console(), keep=arguments.keep)
    except KeyboardInterrupt:
        return 130  # as a shell says it


def _add_resume(subcommands: Subcommands) -> None:
    parser = subcommands.add_parser(
        "resume",
        help="close the breaker of a subscription",
        description="Close the breaker of a subscription, which the tracker opened because there were too "
        "many dead letters: those that it held go out, and leases run out again.",
    )
    parser.add_argument("--subscription", required=True)
    parser.add_argument("--topic", help="only on this queue topic (default: on all that it reads)")
    parser.add_argument("--bootstrap-servers", help="default: as in the file, or localhost:9092")
    parser.add_argument("--config-file", help="a properties file with what else the Kafka clients need")
    parser.add_argument("--markers-topic", default=DEFAULT_MARKERS_TOPIC)
    parser.add_argument("--cursors-topic", default=DEFAULT_CURSORS_TOPIC)
    parser.set_defaults(run=_resume)


def _resume(arguments: argparse.Namespace) -> int:
    from spark_cursor_source.kafka.resume import resume

    given = {"bootstrap.servers": arguments.bootstrap_servers, "config.file": arguments.config_file}
    kafka = {name: value for name, value in given.items() if value is not None}
    kafka = kafka or {"bootstrap.servers": "localhost:9092"}
    partitions = resume(
        kafka,
        arguments.subscription,
        arguments.topic,
        markers_topic=arguments.markers_topic,
        cursors_topic=arguments.cursors_topic,
    )
    print(f"the breaker of {arguments.subscription} closes, on {partitions} partitions")
    return 0


SUBCOMMANDS: tuple[Callable[[Subcommands], None], ...] = (_add_broker, _add_demo, _add_resume)

if __name__ == "__main__":
    sys.exit(main())
