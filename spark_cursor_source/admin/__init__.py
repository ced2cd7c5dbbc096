"""Operations on subscriptions, such as create, seek, pause, limit and redrive, and what operators see.

The command ``cursorq`` calls these functions. This package imports ``consumer``, ``topics``, ``kafka`` and
the layers below; ``cli`` and ``spark`` import it.
"""

from spark_cursor_source.admin.audit import AuditEntry, read_audit
from spark_cursor_source.admin.breaker import ClosedBreakers, close_breaker
from spark_cursor_source.admin.control_commands import control_topic_commands
from spark_cursor_source.admin.dead_letters import (
    DeadLetterFilter,
    DeadLetterGroup,
    DeadLetterRecord,
    group_dead_letters,
    letter_to_json,
    read_dead_letter,
    read_dead_letters,
)
from spark_cursor_source.admin.doctor import examine
from spark_cursor_source.admin.due import DueMessages, read_due
from spark_cursor_source.admin.findings import Finding
from spark_cursor_source.admin.instants import instant_ms
from spark_cursor_source.admin.letter_deletion import DeletedLetters, delete_dead_letters
from spark_cursor_source.admin.limits import Limited, limit_subscription
from spark_cursor_source.admin.marker_log import MarkerRecord, read_markers
from spark_cursor_source.admin.message_event import MessageEvent
from spark_cursor_source.admin.message_history import MessageHistory, read_message_history
from spark_cursor_source.admin.message_tail import TailedMessage, read_tail
from spark_cursor_source.admin.outstanding import read_outstanding
from spark_cursor_source.admin.partition_map import MapCell, PartitionMap, read_partition_map
from spark_cursor_source.admin.pause import Paused, Resumed, pause_subscription, resume_subscription
from spark_cursor_source.admin.redrive import Redriven, redrive
from spark_cursor_source.admin.snapshots import Snapshot
from spark_cursor_source.admin.stats import read_stats
from spark_cursor_source.admin.stuck import Stuck, read_stuck
from spark_cursor_source.admin.subscriptions import (
    EARLIEST,
    LATEST,
    Position,
    Subscriptions,
    at_offsets,
    at_time,
)
from spark_cursor_source.admin.topic_metrics import TopicMetrics
from spark_cursor_source.core.message_state import MessageState
from spark_cursor_source.core.move_preview import MovePreview

__all__ = [
    "EARLIEST",
    "LATEST",
    "AuditEntry",
    "ClosedBreakers",
    "DeadLetterFilter",
    "DeadLetterGroup",
    "DeadLetterRecord",
    "DeletedLetters",
    "DueMessages",
    "Finding",
    "Limited",
    "MapCell",
    "MarkerRecord",
    "MessageEvent",
    "MessageHistory",
    "MessageState",
    "MovePreview",
    "PartitionMap",
    "Paused",
    "Position",
    "Redriven",
    "Resumed",
    "Snapshot",
    "Stuck",
    "Subscriptions",
    "TailedMessage",
    "TopicMetrics",
    "at_offsets",
    "at_time",
    "close_breaker",
    "control_topic_commands",
    "delete_dead_letters",
    "examine",
    "group_dead_letters",
    "instant_ms",
    "letter_to_json",
    "limit_subscription",
    "pause_subscription",
    "read_audit",
    "read_dead_letter",
    "read_dead_letters",
    "read_due",
    "read_markers",
    "read_message_history",
    "read_outstanding",
    "read_partition_map",
    "read_stats",
    "read_stuck",
    "read_tail",
    "redrive",
    "resume_subscription",
]
