"""The order in which ``make test`` runs the files, and which of them took longest.

The workers share one line of files. At its front are the files that start Spark processes of their own, at
its end those that share one Spark session, and in the middle all others, which wait more than they compute;
of each kind those that take longest come first. One worker takes files from the front, one from the end and
one from the middle, and each helps the others when its kind is done. So each worker has the expensive
fixtures of one kind, and all end at about the same time. Files that need another broker than that of the
session stand together, because it ends with the last of them; so do those that need Spark processes which
wait.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

SHOWN = 10
BROKERS = frozenset({"guarded_broker", "mortal_broker", "short_broker"})
GARAGE = "garage"  #: keeps a Spark process that waits, as long as the next file needs one
E2E = "tests/e2e/"
WITH_SESSION = frozenset({"tests/docs/test_examples.py", "tests/e2e/test_notebook.py"})
DEFAULT_S = 3  #: of a file that is not in the table

#: Seconds that a file takes, where that is more than a few; a wrong number costs balance and nothing else.
SECONDS = {
    "tests/admin/test_breaker.py": 10,
    "tests/admin/test_dead_letters.py": 10,
    "tests/admin/test_doctor.py": 10,
    "tests/admin/test_redrive.py": 55,
    "tests/admin/test_stats.py": 20,
    "tests/admin/test_subscriptions.py": 90,
    "tests/cli/test_logs.py": 10,
    "tests/cli/test_messages.py": 15,
    "tests/client/test_broker_killed.py": 35,
    "tests/client/test_change_of_tracker.py": 20,
    "tests/client/test_cursors.py": 30,
    "tests/client/test_expected_offset.py": 15,
    "tests/client/test_guide.py": 10,
    "tests/client/test_metrics.py": 15,
    "tests/client/test_limits.py": 30,
    "tests/client/test_pause.py": 20,
    "tests/client/test_queues.py": 180,
    "tests/client/test_queues_beside_spark.py": 20,
    "tests/client/test_queues_v1.py": 40,
    "tests/client/test_rescue.py": 240,
    "tests/client/test_rights.py": 10,
    "tests/client/test_stream_states.py": 10,
    "tests/client/test_streams.py": 15,
    "tests/client/test_subscribe.py": 35,
    "tests/client/test_topic_recreated.py": 45,
    "tests/consumer/test_ack_check.py": 40,
    "tests/consumer/test_earlier_ends.py": 15,
    "tests/consumer/test_source_topics.py": 25,
    "tests/devkit/test_broker.py": 120,
    "tests/docs/test_examples.py": 140,
    "tests/docs/test_pages.py": 20,
    "tests/e2e/test_broker_killed.py": 25,
    "tests/e2e/test_checkpoints.py": 40,
    "tests/e2e/test_cluster_install.py": 95,
    "tests/e2e/test_consumer_killed.py": 135,
    "tests/e2e/test_consumer_killed_v1.py": 25,
    "tests/e2e/test_database.py": 230,
    "tests/e2e/test_delta.py": 280,
    "tests/e2e/test_demo.py": 130,
    "tests/e2e/test_every_step.py": 35,
    "tests/e2e/test_faults.py": 150,
    "tests/e2e/test_kafka_sink.py": 180,
    "tests/e2e/test_jobs.py": 40,
    "tests/e2e/test_key_order.py": 170,
    "tests/e2e/test_ledger.py": 245,
    "tests/e2e/test_notebook.py": 220,
    "tests/e2e/test_pipeline.py": 35,
    "tests/e2e/test_subscriptions.py": 120,
    "tests/e2e/test_tracker_killed.py": 155,
    "tests/interop/test_reappend.py": 35,
    "tests/kafka/test_admin.py": 110,
    "tests/kafka/test_clusters.py": 45,
    "tests/kafka/test_first_contact.py": 15,
    "tests/kafka/test_group_admin.py": 15,
    "tests/kafka/test_interruptible.py": 10,
    "tests/kafka/test_markers_view.py": 15,
    "tests/kafka/test_tail_consumer.py": 10,
    "tests/spark/test_ack_batch.py": 10,
    "tests/spark/test_ack_writer.py": 85,
    "tests/spark/test_acks.py": 80,
    "tests/spark/test_acks_as_they_go.py": 10,
    "tests/spark/test_batch_acks.py": 75,
    "tests/spark/test_batches.py": 125,
    "tests/spark/test_blocked.py": 15,
    "tests/spark/test_connect.py": 80,
    "tests/spark/test_delays.py": 45,
    "tests/spark/test_expiry.py": 20,
    "tests/spark/test_given_up.py": 60,
    "tests/spark/test_handlers_killed.py": 55,
    "tests/spark/test_kafka_sink.py": 90,
    "tests/spark/test_leases.py": 70,
    "tests/spark/test_logs.py": 40,
    "tests/spark/test_markers_v1.py": 15,
    "tests/spark/test_message_writer.py": 40,
    "tests/spark/test_outcomes.py": 55,
    "tests/spark/test_planner.py": 55,
    "tests/spark/test_planner_v1.py": 40,
    "tests/spark/test_query_metrics.py": 15,
    "tests/spark/test_queue_watch.py": 30,
    "tests/spark/test_reappend.py": 35,
    "tests/spark/test_refusals.py": 75,
    "tests/spark/test_rescue.py": 150,
    "tests/spark/test_rights.py": 55,
    "tests/spark/test_secrets.py": 60,
    "tests/spark/test_sink_of_source.py": 20,
    "tests/spark/test_subscriptions.py": 10,
    "tests/spark/test_token_login.py": 25,
    "tests/spark/test_unread.py": 75,
    "tests/spark/test_views.py": 65,
    "tests/test_cli.py": 25,
    "tests/test_cluster.py": 100,
    "tests/test_layout.py": 15,
    "tests/test_promises.py": 10,
    "tests/topics/test_copies.py": 10,
    "tests/topics/test_cursors.py": 50,
    "tests/topics/test_cursors_anew.py": 25,
    "tests/topics/test_delayed.py": 10,
    "tests/topics/test_markers.py": 60,
    "tests/topics/test_message_sender.py": 25,
    "tests/topics/test_queue.py": 80,
    "tests/topics/test_redeliveries.py": 60,
    "tests/tracker/test_dead_letter_troubles.py": 65,
    "tests/tracker/test_outbox.py": 190,
    "tests/tracker/test_planner.py": 30,
    "tests/tracker/test_repeated_batch.py": 10,
    "tests/tracker/test_rescue_troubles.py": 60,
    "tests/tracker/test_standalone.py": 70,
    "tests/ui/test_browser.py": 95,
    "tests/ui/test_pages.py": 50,
}


def _place(path: str, needed: Collection[str]) -> tuple[int, bool, tuple[str, ...], int]:
    """Where a file stands in the line, by the fixtures of those that keep processes that it needs."""
    seconds = SECONDS.get(path, DEFAULT_S)
    if path.startswith("tests/spark/") or path in WITH_SESSION:
        return 2, False, (), seconds
    if path.startswith(E2E):
        return 0, GARAGE not in needed, (), -seconds
    return 1, not needed, tuple(sorted(needed)), -seconds


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files in line; the tests of a file keep their order."""
    needed: defaultdict[str, set[str]] = defaultdict(set)
    for item in items:
        needed[_file(item.nodeid)] |= (BROKERS | {GARAGE}).intersection(getattr(item, "fixturenames", ()))
    places = {path: (_place(path, brokers), path) for path, brokers in needed.items()}
    items.sort(key=lambda item: places[_file(item.nodeid)])


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadfile``, hand the line out from its front, its end and its middle."""
    from xdist.scheduler import LoadFileScheduling

    class FromThreePlaces(LoadFileScheduling):
        def _assign_work_unit(self, node: Any) -> None:
            place = int(node.gateway.id.removeprefix("gw")) % 3
            if place == 1:
                self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
            elif place == 2:
                first = next(iter(self.workqueue))
                middle = (path for path in self.workqueue if not path.startswith(E2E))
                self.workqueue.move_to_end(next(middle, first), last=False)
            super()._assign_work_unit(node)

        def remove_node(self, node: Any) -> Any:
            """Do not run the test again with which a process ended, see ``stuck.py``."""
            ended_with = None
            for unit in self.assigned_work[node].values():
                for nodeid, completed in unit.items():
                    if not completed and ended_with is None:
                        ended_with = nodeid
                        unit[nodeid] = True
            units = self.assigned_work[node]
            self.assigned_work[node] = {file: unit for file, unit in units.items() if not all(unit.values())}
            super().remove_node(node)
            return ended_with

    if config.getvalue("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False  # which would put the files with the most tests first
    return FromThreePlaces(config, log)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the files that took longest, if there are so many."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[_file(report.nodeid)] += report.duration
    if len(seconds) <= SHOWN:
        return
    terminalreporter.section(f"slowest {SHOWN} files")
    for path in sorted(seconds, key=lambda path: -seconds[path])[:SHOWN]:
        terminalreporter.write_line(f"{seconds[path]:8.1f}s {Path(path)}")
