"""Headers of the markers of an operator: who acted, and what the action was."""

from __future__ import annotations

import getpass
import os
import socket
import uuid
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import Message

from spark_cursor_source.kafka.record_headers import headers_of

HEADER_AUTHOR = "cursorq-author"
HEADER_ACTION = "cursorq-action"
HEADER_ACTION_ID = "cursorq-action-id"
MAX_TEXT = 200  #: longest author or action that is written, in characters


class Action(NamedTuple):
    """An action of an operator."""

    author: str  #: such as ``alice@host as User:ops``
    what: str  #: the action in words, such as ``seek``
    id: str  #: the same for all markers of the action

    def headers(self) -> list[tuple[str, str | bytes | None]]:
        """Return the record headers of the action."""
        pairs = ((HEADER_AUTHOR, self.author), (HEADER_ACTION, self.what), (HEADER_ACTION_ID, self.id))
        return [(name, text[:MAX_TEXT].encode(errors="replace")) for name, text in pairs]


def new_action(author: str, what: str) -> Action:
    """Return an action with a new id."""
    return Action(author, what, uuid.uuid4().hex[:16])


def action_of(message: Message) -> Action | None:
    """Return the action that a record of the markers topic belongs to, or None if it has none."""
    found = {name: (value or b"").decode(errors="replace") for name, value in headers_of(message)}
    if HEADER_AUTHOR not in found:
        return None
    return Action(found[HEADER_AUTHOR], found.get(HEADER_ACTION, ""), found.get(HEADER_ACTION_ID, ""))


def author_of(config: Mapping[str, str], told: str | None = None) -> str:
    """Return who acts: ``told``, or the user and host of this process, with its login at the brokers.

    The brokers do not check it. It says who acted among people who trust each other.

    >>> author_of({}, "alice")
    'alice'
    >>> author_of({"sasl.username": "ops"}).endswith(" as User:ops")
    True
    """
    if told:
        return told
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container without a user database
        user = str(os.getuid())
    login = config.get("sasl.username")
    return f"{user}@{socket.gethostname()}" + (f" as User:{login}" if login else "")
