"""What befalls the brokers of a cluster of three while a ledger is kept: each leader, each coordinator.

The apps have to outlive all of it: none of these faults may end a query or a tracker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from confluent_kafka import ElectionType, KafkaException
from confluent_kafka.admin import AdminClient

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.topics.tracker_progress import tracker_group
from tests.e2e.harness import wait_until
from tests.e2e.ledger import PARTITIONS, Fault, Ledger, consumer_stopped, driver_killed, tracker_killed
from tests.replicas import await_replicas

Find = Callable[[Ledger], "int | None"]


def _cell(ledger: Ledger) -> Cell:
    """One of the queue's cells, in whose partitions of the control topics there is something to lose."""
    number = ledger.random.randrange(PARTITIONS)
    return Cell(subscription=ledger.queue.subscription, topic=ledger.queue.topic, partition=number)


def _control_leader(name: str) -> Find:
    def find(ledger: Ledger) -> int | None:
        topic = ledger.queue.control.names[name]
        count = ledger.queue.topics.describe([topic])[topic].partitions
        return ledger.broker.leader(topic, _cell(ledger).control_partition(count))

    return find


def _queue_leader(ledger: Ledger) -> int | None:
    return ledger.broker.leader(ledger.queue.topic, ledger.random.randrange(PARTITIONS))


def _controller(ledger: Ledger) -> int | None:
    return ledger.broker.controller()


def _group_coordinator(ledger: Ledger) -> int | None:
    return ledger.broker.coordinator(ledger.queue.group)


def _transaction_coordinator(ledger: Ledger) -> int | None:
    return ledger.broker.transaction_coordinator(tracker_group(ledger.queue.control.markers))


ROLES: dict[str, Find] = {
    "markers_leader": _control_leader("markersTopic"),
    "redeliveries_leader": _control_leader("redeliveriesTopic"),
    "cursors_leader": _control_leader("cursorsTopic"),
    "queue_leader": _queue_leader,
    "controller": _controller,
    "group_coordinator": _group_coordinator,
    "transaction_coordinator": _transaction_coordinator,
}


def _one(ledger: Ledger, find: Find, role: str) -> int:
    """The id of the broker that has this role, as soon as there is one."""
    found = wait_until(lambda: find(ledger), f"a broker is the {role}")
    assert isinstance(found, int)
    return found


def _killed(role: str, find: Find) -> Fault:
    def fault(ledger: Ledger) -> None:
        broker = _one(ledger, find, role)
        ledger.broker.kill(broker)
        time.sleep(ledger.random.uniform(0, 2 * ledger.away_s))  # the others elect, and go on, or not yet
        ledger.broker.start(broker)

    fault.__name__ = f"{role}_killed"
    return fault


def _paused(role: str, find: Find) -> Fault:
    def fault(ledger: Ledger) -> None:
        broker = _one(ledger, find, role)
        ledger.broker.pause(broker)
        # For less than its session with the controller, or for longer: then it is fenced.
        time.sleep(ledger.random.uniform(1, 2 * ledger.away_s))
        ledger.broker.resume(broker)

    fault.__name__ = f"{role}_paused"
    return fault


def two_brokers_away(ledger: Ledger) -> None:
    """No record is acknowledged by one replica of three: writes wait, and so does all that waits for them."""
    for broker in ledger.random.sample(sorted(ledger.broker.pids), 2):
        ledger.broker.kill(broker)
    time.sleep(2 * ledger.away_s)
    ledger.broker.start()


def all_brokers_killed(ledger: Ledger) -> None:
    """What was acknowledged is on three disks."""
    ledger.broker.kill()
    ledger.broker.start()


def leaders_elected(ledger: Ledger) -> None:
    """Leadership goes back to the first replica of each partition, as after a rolling restart."""
    await_replicas(ledger.broker)
    admin = AdminClient({"bootstrap.servers": ledger.broker.bootstrap_servers, "log_level": 0})
    try:
        admin.elect_leaders(ElectionType.PREFERRED).result(timeout=60)  # it takes no timeout of its own
    except KafkaException as refused:
        print(f"elect_leaders: {refused}")


def _each_role() -> Iterator[Fault]:
    for role, find in ROLES.items():
        yield _killed(role, find)
        yield _paused(role, find)


ROLE_FAULTS = {fault.__name__: fault for fault in _each_role()}
BROKER_FAULTS = (*ROLE_FAULTS.values(), two_brokers_away, all_brokers_killed, leaders_elected)
CLUSTER_FAULTS: tuple[Fault, ...] = (*BROKER_FAULTS, driver_killed, consumer_stopped, tracker_killed)
