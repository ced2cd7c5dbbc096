"""The replication of topics: weak ones, and the commands that cure them."""

from __future__ import annotations

import json
import shlex

import pytest

from spark_cursor_source.core.durability import WeakTopic, weakness_of


def judged(
    replicas: dict[int, list[int]], min_insync: int | None = 2, brokers: tuple[int, ...] = (1, 2, 3)
) -> WeakTopic | None:
    return weakness_of("m", replicas, min_insync=min_insync, brokers=brokers, servers="k1:9092,k2:9092")


@pytest.mark.parametrize(
    ("replicas", "min_insync", "brokers"),
    [
        pytest.param({0: [1]}, 1, (1,), id="a lone broker can do no more"),
        pytest.param({0: [1, 2], 1: [2, 1]}, 2, (1, 2), id="two of two"),
        pytest.param({0: [1, 2, 3], 1: [3, 1, 2]}, 2, (1, 2, 3), id="three of three"),
        pytest.param({0: [1, 2, 3]}, 2, (1, 2), id="three of three, one of which is away"),
        pytest.param({0: [4, 2, 5]}, 3, (1, 2, 3, 4, 5), id="three of five"),
        pytest.param({0: [1, 2, 3]}, None, (1, 2, 3), id="the brokers do not tell the settings"),
        pytest.param({}, None, (1, 2, 3), id="a topic without partitions is not there"),
    ],
)
def test_a_topic_with_the_replicas_that_its_cluster_can_give_is_not_weak(
    replicas: dict[int, list[int]], min_insync: int | None, brokers: tuple[int, ...]
) -> None:
    assert judged(replicas, min_insync, brokers) is None


@pytest.mark.parametrize(
    ("replicas", "min_insync", "brokers"),
    [
        pytest.param({0: [1, 2, 3], 1: [1, 2]}, 2, (1, 2, 3), id="one partition has two of three"),
        pytest.param({0: [1]}, 1, (1, 2), id="one of two"),
        pytest.param({0: [1, 2, 3]}, 1, (1, 2, 3), id="one replica acknowledges"),
        pytest.param({0: [1]}, None, (1, 2, 3), id="the brokers do not tell the settings"),
    ],
)
def test_a_topic_with_fewer_replicas_or_one_that_acknowledges_alone_is_weak(
    replicas: dict[int, list[int]], min_insync: int | None, brokers: tuple[int, ...]
) -> None:
    weak = judged(replicas, min_insync, brokers)
    assert weak is not None
    assert weak.replication == min(len(of) for of in replicas.values())
    assert weak.min_insync == min_insync


def test_the_cure_grows_each_partition_on_brokers_of_its_own_and_keeps_its_leader() -> None:
    weak = judged({0: [2], 1: [2], 2: [1, 2, 3]}, min_insync=1)
    assert weak is not None
    words = shlex.split(weak.cure)
    assert json.loads(words[1]) == {
        "version": 1,
        "partitions": [
            {"topic": "m", "partition": 0, "replicas": [2, 1, 3]},
            {"topic": "m", "partition": 1, "replicas": [2, 3, 1]},
        ],
    }
    assert words.count("k1:9092,k2:9092") == 2
    assert words[-1] == "min.insync.replicas=2"
    assert str(weak).startswith(
        "topic m has replication 1 and min.insync.replicas 1 on 3 brokers, "
        "so it can lose acknowledged records with one broker; run: echo "
    )
