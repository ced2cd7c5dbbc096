"""Snapshots on the page: take, restore, clone and forget, each with its effect before."""

from __future__ import annotations

from spark_cursor_source.admin.snapshots import Snapshot, check_snapshot_name
from spark_cursor_source.admin.subscriptions import Subscriptions
from spark_cursor_source.core.counted import counted
from spark_cursor_source.core.move_preview import effect_of
from spark_cursor_source.ui.moves import kept, opened, places
from spark_cursor_source.ui.plans import Fields, Plan, Question, TextField
from spark_cursor_source.ui.settings import UiSettings
from spark_cursor_source.wire.instant_text import instant_text


class Saves:
    """Actions on the snapshots of a subscription. The field ``snapshot`` is the name of one.

    Raises:
        KeyError: a field is missing.
        CursorqError: the errors of ``Subscriptions``.
    """

    def __init__(self, settings: UiSettings, author: str) -> None:
        self._settings, self._author = settings, author

    def snapshot(self, given: Fields) -> Plan | Question:
        """Returns what a new snapshot would hold, or asks for its name."""
        name, topic = given["name"], given["topic"]
        if "snapshot" not in given:
            return _question(
                given,
                title=f"Take a snapshot of {name} on {topic}",
                told="A snapshot keeps the ack state of each message, and the delivery counts. A "
                "subscription has at most eight of a topic.",
                text=TextField(name="snapshot", label="Name", example="before release 7"),
            )
        wanted = given["snapshot"].strip()
        check_snapshot_name(wanted)
        with self._open() as subscriptions:
            earlier = _found(subscriptions.snapshots(name, topic), wanted)
        told = "Nothing is delivered or acked by it. Restore returns to this state."
        if earlier is not None:
            told = f"It replaces the snapshot of this name from {instant_text(earlier.at_ms)}. {told}"
        return Plan(
            title=f"Save {name} on {topic} as '{wanted}'",
            told=told,
            button="Take the snapshot",
            fields=kept(given) | {"snapshot": wanted},
        )

    def restore(self, given: Fields) -> Plan:
        """Returns the effect of a return to a snapshot."""
        name, topic, snapshot = given["name"], given["topic"], given["snapshot"]
        with self._open() as subscriptions:
            preview = subscriptions.preview_restore(name, topic, snapshot)
        return Plan(
            title=f"Restore {name} on {topic} from '{snapshot}'",
            told=f"{effect_of(preview)}. Acks that were made since the snapshot are forgotten. Running "
            "consumers follow. Undo returns to the present state. The snapshot stays.",
            button="Restore",
            fields=kept(given, "snapshot"),
            moves=preview,
        )

    def clone(self, given: Fields) -> Plan | Question:
        """Returns where a clone would begin, or asks for its name."""
        name, topic, snapshot = given["name"], given["topic"], given.get("snapshot")
        state = f"the present state of {name}" if snapshot is None else f"the snapshot '{snapshot}' of {name}"
        if "target" not in given:
            return _question(
                given,
                title=f"Clone {name} on {topic}",
                told=f"Another subscription of the topic begins with {state}. It has its own acks.",
                text=TextField(name="target", label="New subscription", example=f"{name}-staging"),
            )
        target = given["target"].strip()
        with self._open() as subscriptions:
            preview = subscriptions.preview_clone(name, topic, target, snapshot=snapshot)
        outstanding = sum(one.again for one in preview)
        return Plan(
            title=f"Create {target} on {topic} as a clone of {name}",
            told=f"It begins with {state}: {counted(outstanding, 'outstanding message')}, and everything "
            f"from the read positions on. Its delivery counts start at 0. {name} does not change.",
            button="Clone",
            fields=kept(given, "snapshot", "target"),
            begins=preview,
        )

    def forget(self, given: Fields) -> Plan:
        """Returns what the removal of a snapshot means."""
        name, topic, snapshot = given["name"], given["topic"], given["snapshot"]
        return Plan(
            title=f"Forget the snapshot '{snapshot}' of {name} on {topic}",
            told="The subscription does not change. The snapshot cannot be restored any more.",
            button="Forget",
            fields=kept(given, "snapshot"),
        )

    def do_snapshot(self, given: Fields) -> str:
        """Takes a snapshot, and returns its result in words."""
        with self._open() as subscriptions:
            positions = subscriptions.snapshot(given["name"], given["topic"], given["snapshot"])
        return f"{given['name']} is saved as '{given['snapshot']}' at {places(positions)}."

    def do_restore(self, given: Fields) -> str:
        """Restores a snapshot, and returns its result in words."""
        with self._open() as subscriptions:
            positions = subscriptions.restore(given["name"], given["topic"], given["snapshot"])
        return f"{given['name']} goes on at {places(positions)}."

    def do_clone(self, given: Fields) -> str:
        """Clones a subscription, and returns its result in words."""
        target = given["target"].strip()
        with self._open() as subscriptions:
            positions = subscriptions.clone(
                given["name"], given["topic"], target, snapshot=given.get("snapshot")
            )
        return f"{target} begins at {places(positions)}."

    def do_forget(self, given: Fields) -> str:
        """Removes a snapshot, and returns its result in words."""
        with self._open() as subscriptions:
            subscriptions.forget_snapshot(given["name"], given["topic"], given["snapshot"])
        return f"{given['name']} has no snapshot '{given['snapshot']}' any more."

    def _open(self) -> Subscriptions:
        return opened(self._settings, self._author)


def _question(given: Fields, *, title: str, told: str, text: TextField) -> Question:
    return Question(title=title, told=told, fields=kept(given, "snapshot"), texts=(text,))


def _found(snapshots: tuple[Snapshot, ...], name: str) -> Snapshot | None:
    return next((one for one in snapshots if one.name == name), None)
