"""Producers of a client's records."""

from __future__ import annotations

import pytest

from spark_cursor_source.kafka.publisher import Publisher


@pytest.mark.parametrize(("acks", "idempotent"), [("all", True), ("-1", True), ("1", False), ("0", False)])
def test_confirmations_by_all_replicas_are_idempotent_in_both_spellings(acks: str, idempotent: bool) -> None:
    publisher = Publisher({"bootstrap.servers": "127.0.0.1:9"}, timeout_ms=300, acks=acks)
    assert publisher._confirmed._config["enable.idempotence"] is idempotent
