"""The ports of the brokers: chosen at the first start, the same at every later one."""

from __future__ import annotations

from collections.abc import Collection

from spark_cursor_source.devkit.process import HOST, free_port, is_free
from spark_cursor_source.errors import BrokerNotReady, PortTaken


class BrokerPorts:
    """A client port and a controller port for each broker; ``first`` is broker 1's client port, if given."""

    def __init__(self, numbers: Collection[int], first: int | None) -> None:
        self._numbers = numbers
        self._given = {} if first is None else {number: first + number - 1 for number in numbers}
        self._kept = False
        self.client: dict[int, int] = {}
        self.controller: dict[int, int] = {}

    @property
    def bootstrap_servers(self) -> str:
        return self.addresses(self.client) if self._kept else ""

    def addresses(self, numbers: Collection[int]) -> str:
        """``host:port`` of these brokers, for clients."""
        return ",".join(f"{HOST}:{self.client[number]}" for number in numbers)

    def check(self, starting: Collection[int], cause: BrokerNotReady | None = None) -> None:
        """Raise PortTaken for a port of the ``starting`` ones that must be theirs and is another's."""
        for number, port in (self.client if self._kept else self._given).items():
            if number in starting and not is_free(port):
                raise PortTaken(port) from cause

    def choose(self) -> None:
        """Choose what was not given and is not kept; a lone broker's controller port is new each time."""
        taken: set[int] = set()

        def free() -> int:
            taken.add(found := free_port(other_than=taken))
            return found

        if not self._kept:
            self.client = dict(self._given) or {number: free() for number in self._numbers}
        taken.update(self.client.values())
        if not self._kept or len(self._numbers) == 1:
            self.controller = {number: free() for number in self._numbers}

    def keep(self) -> None:
        """Have the same from now on: the brokers have started with them."""
        self._kept = True
