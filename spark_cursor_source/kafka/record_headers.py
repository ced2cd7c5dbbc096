"""Headers of records, also of those with a name that is not UTF-8, which the client cannot read."""

from __future__ import annotations

import gc
import re
from collections.abc import Sequence
from operator import methodcaller
from typing import Any

from confluent_kafka import Message

Headers = list[tuple[str, bytes | None]]

# A call in Python code does not notice the client's error once the interpreter has specialized it. The error
# then comes up anywhere later. Calls by the interpreter's own functions always notice it.
_CALL = methodcaller("headers")
_WRONG = "\ufffd"
_WRONG_BYTE = re.compile("[\udc80-\udcff]")


def headers_of(message: Message) -> Headers:
    """Return the headers of a record. Empty if it has none. See :func:`all_headers`."""
    try:
        found: Any = _CALL(message)
    except (SystemError, UnicodeDecodeError) as failed:
        return _readable(message, failed)
    return found or []


def all_headers(messages: Sequence[Message]) -> list[Headers | None]:
    """Return the headers of each record.

    As with the native reader, each wrong byte of a name is U+FFFD. If several names of a record are not
    UTF-8, each of them is U+FFFD.
    """
    found: list[Any] = []
    rest = iter(messages)
    while True:
        try:
            found.extend(map(Message.headers, rest))
            return found
        except (SystemError, UnicodeDecodeError) as failed:  # those before it are in the list
            found.append(_readable(messages[len(found)], failed))


def _readable(message: Message, failed: Exception) -> Headers:
    """Return the headers of a record that the client has just failed to read, and make it return them too."""
    why: BaseException | None = failed
    while not isinstance(why, UnicodeDecodeError):  # the cause of what the interpreter finds wrong
        if why is None:
            raise failed
        why = why.__cause__
    # The client fails only once. Then it returns pairs with no object in the place of such a name, and a
    # touch of that place ends the process. The garbage collector's view of a pair leaves it out.
    given: Any = message.headers()
    pairs = [gc.get_referents(pair) for pair in given]
    names = [next((one for one in pair if isinstance(one, str)), None) for pair in pairs]
    values = [next((one for one in pair if isinstance(one, bytes)), None) for pair in pairs]
    wrong = _WRONG  # of several such names the error tells only one
    if names.count(None) == 1:
        wrong = _WRONG_BYTE.sub(_WRONG, why.object.decode(errors="surrogateescape"))
    headers = [(wrong if name is None else name, value) for name, value in zip(names, values, strict=True)]
    message.set_headers(headers)  # type: ignore[arg-type]
    return headers
