"""Control topics of a test's own, on the session's broker or another."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.kafka.admin import ClusterAdmin
from tests.kafka.control_plane import Control, new_control


@pytest.fixture
def config(broker: EmbeddedKafka) -> dict[str, str]:
    return {"bootstrap.servers": broker.bootstrap_servers}


@pytest.fixture
def topics(config: dict[str, str]) -> ClusterAdmin:
    return ClusterAdmin(config)


@pytest.fixture
def control(config: dict[str, str]) -> Control:
    return new_control(config)


@pytest.fixture
def make_control() -> Callable[[dict[str, str]], Control]:
    """Control topics on another broker than the suite's."""
    return new_control


@pytest.fixture
def create_on() -> Callable[..., str]:
    """``create_on(config, partitions, cleanup_policy="compact")``: a cursors topic on another broker."""

    def create(config: dict[str, str], partitions: int, **settings: object) -> str:
        name = f"cursors-{uuid.uuid4().hex[:12]}"
        ClusterAdmin(config).create(
            {name: (partitions, {key.replace("_", "."): value for key, value in settings.items()})}
        )
        return name

    return create
