"""When an idle query rests, and what wakes it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from spark_cursor_source.consumer.idle_wait import LOOK_S, QUIET_S, WAIT_S, IdleWait

ENDS = {("orders", 0): 7, ("orders", 1): 9}


class Fetch:
    """A fetch whose notices the test gives, and a clock that its waits move."""

    def __init__(self) -> None:
        self.now, self.news, self.waited = 100.0, False, list[float]()
        self.ends: Mapping[tuple[str, int], int] | None = None

    def begin(self, ends: Mapping[tuple[str, int], int]) -> None:
        self.ends = ends

    def wait(self, wait_s: float) -> bool:
        self.waited.append(wait_s)
        self.now += 0 if self.news else wait_s
        return self.news

    def stop(self) -> None:
        self.ends = None


@pytest.fixture
def fetch() -> Fetch:
    return Fetch()


@pytest.fixture
def idle(fetch: Fetch) -> IdleWait:
    """An idle query that has begun to rest."""
    wait = IdleWait(fetch, now_s=lambda: fetch.now)
    fetch.now += QUIET_S
    wait.rest(ENDS)
    assert fetch.ends == ENDS
    return wait


def test_a_query_that_had_news_a_moment_ago_looks_again_at_once(fetch: Fetch) -> None:
    wait = IdleWait(fetch, now_s=lambda: fetch.now)
    wait.rest(ENDS)
    assert not wait.goes_on(ENDS)
    assert fetch.ends is None


def test_a_query_rests_until_the_next_look(idle: IdleWait, fetch: Fetch) -> None:
    began = fetch.now
    while idle.goes_on(ENDS):
        fetch.now += 0.01
    assert LOOK_S <= fetch.now - began < LOOK_S + 0.02
    assert max(fetch.waited) == WAIT_S
    idle.rest(ENDS)
    assert idle.goes_on(ENDS)


def test_an_append_ends_the_rest(idle: IdleWait, fetch: Fetch) -> None:
    assert idle.goes_on(ENDS)
    fetch.news = True
    assert not idle.goes_on(ENDS)
    fetch.news = False
    assert not idle.goes_on(ENDS), "there may be more"
    idle.rest(ENDS)
    assert not idle.goes_on(ENDS)
    fetch.now += QUIET_S
    idle.rest(ENDS)
    assert idle.goes_on(ENDS)


def test_other_partitions_end_the_rest(idle: IdleWait) -> None:
    assert not idle.goes_on([*ENDS, ("orders", 2)])


def test_a_batch_ends_the_fetch(idle: IdleWait, fetch: Fetch) -> None:
    idle.end()
    assert fetch.ends is None
    assert not idle.goes_on(ENDS)


def test_a_query_that_is_asked_seldom_does_not_wait(idle: IdleWait, fetch: Fetch) -> None:
    # Another stream of the same query would wait for this one.
    fetch.now += 0.2
    assert idle.goes_on(ENDS)
    assert fetch.waited == [0]
