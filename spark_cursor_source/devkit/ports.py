"""Ports of the brokers: chosen at the first start and kept for later starts."""

from __future__ import annotations

from collections.abc import Collection

from spark_cursor_source.devkit.process import HOST, free_port, is_free
from spark_cursor_source.errors import BrokerNotReady, PortTaken


class BrokerPorts:
    """Client and controller ports of each broker. ``first`` is broker 1's client port, if given."""

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
        """Returns ``host:port`` of these brokers, for clients."""
        return ",".join(f"{HOST}:{self.client[number]}" for number in numbers)

    def check(self, starting: Collection[int], cause: BrokerNotReady | None = None) -> None:
        """Raises PortTaken if another process uses a fixed port of the ``starting`` brokers."""
        for number, port in (self.client if self._kept else self._given).items():
            if number in starting and not is_free(port):
                raise PortTaken(port) from cause

    def choose(self) -> None:
        """Chooses ports that are neither given nor kept.

        A single broker gets a new controller port at each start.
        """
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
        """Keeps the present ports for later starts, after the brokers have started with them."""
        self._kept = True
