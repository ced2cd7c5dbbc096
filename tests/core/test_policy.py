"""How often a message comes back, and when."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cursor_source.core.names import holds_dead_letters, why_no_template
from spark_cursor_source.core.policy import (
    NO_BACKOFF,
    ExponentialBackoff,
    RedeliveryPolicy,
    StepBackoff,
)
from spark_cursor_source.errors import InvalidOption


@given(jitter=st.floats(0, 1), delay_ms=st.integers(0, 10**9), count=st.integers(1, 100), of=st.binary())
def test_a_wait_is_shorter_by_the_jitter_at_most_and_the_same_each_time(
    jitter: float, delay_ms: int, count: int, of: bytes
) -> None:
    policy = RedeliveryPolicy(backoff=StepBackoff(delays_ms=(delay_ms,)), jitter=jitter)
    wait_ms = policy.wait_ms(count, of=of)
    assert int(delay_ms * (1 - jitter)) <= wait_ms <= delay_ms
    assert wait_ms == policy.wait_ms(count, of=of)


def test_what_is_named_differently_waits_differently_long() -> None:
    policy = RedeliveryPolicy(backoff=StepBackoff(delays_ms=(100_000,)), jitter=1.0)
    waits = [policy.wait_ms(count, of=b"%d" % n) for n in range(1_000) for count in (1, 2)]
    tenths = Counter(wait_ms // 10_000 for wait_ms in waits)
    assert set(tenths) == set(range(10))
    assert min(tenths.values()) > 150


def test_a_jitter_is_a_part_of_one() -> None:
    for jitter in (-0.1, 1.1, float("nan")):
        with pytest.raises(InvalidOption, match="backoffJitter"):
            RedeliveryPolicy(jitter=jitter)


def test_the_last_step_of_a_backoff_repeats() -> None:
    backoff = StepBackoff(delays_ms=(1, 10, 60))
    assert [backoff.delay_ms(count) for count in range(1, 6)] == [1, 10, 60, 60, 60]


def test_no_backoff_is_no_delay() -> None:
    assert NO_BACKOFF.delay_ms(1) == NO_BACKOFF.delay_ms(1_000) == 0


def test_an_exponential_backoff_grows_from_min_and_stops_at_max() -> None:
    backoff = ExponentialBackoff(min_ms=100, max_ms=1_000, multiplier=1.5)
    assert [backoff.delay_ms(count) for count in (1, 2, 3, 50)] == [100, 150, 225, 1_000]


def test_a_delivery_count_beyond_any_float_still_has_the_longest_delay() -> None:
    assert ExponentialBackoff(min_ms=1, max_ms=9, multiplier=2).delay_ms(2**31) == 9
    assert ExponentialBackoff(min_ms=0, max_ms=9, multiplier=2).delay_ms(2**31) == 0


@given(
    min_ms=st.integers(0, 10**6),
    more_ms=st.integers(0, 10**9),
    multiplier=st.floats(1, 1_000),
    count=st.integers(1, 10_000),
)
def test_a_delay_never_shrinks_with_deliveries_and_stays_in_its_bounds(
    min_ms: int, more_ms: int, multiplier: float, count: int
) -> None:
    backoff = ExponentialBackoff(min_ms=min_ms, max_ms=min_ms + more_ms, multiplier=multiplier)
    assert min_ms <= backoff.delay_ms(count) <= backoff.delay_ms(count + 1) <= min_ms + more_ms


@pytest.mark.parametrize("backoff", [NO_BACKOFF, ExponentialBackoff(min_ms=1, max_ms=2, multiplier=2)])
def test_a_delivery_count_of_zero_is_a_mistake(backoff: StepBackoff | ExponentialBackoff) -> None:
    with pytest.raises(ValueError, match="starts at 1"):
        backoff.delay_ms(0)


def test_a_backoff_that_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"backoff\.min"):
        ExponentialBackoff(min_ms=2, max_ms=1, multiplier=2)
    with pytest.raises(InvalidOption, match=r"backoff\.multiplier"):
        ExponentialBackoff(min_ms=1, max_ms=2, multiplier=float("nan"))
    with pytest.raises(InvalidOption, match="negative"):
        StepBackoff(delays_ms=(-1,))


def test_no_limit_of_deliveries_is_none_and_zero_is_refused() -> None:
    assert not RedeliveryPolicy(max_deliveries=None).exhausted(10**9)
    with pytest.raises(InvalidOption, match="maxDeliveries"):
        RedeliveryPolicy(max_deliveries=0)


def test_a_message_is_exhausted_with_its_last_delivery_and_not_before() -> None:
    policy = RedeliveryPolicy(max_deliveries=2)
    assert [policy.exhausted(count) for count in (1, 2, 3)] == [False, True, True]


@pytest.mark.parametrize(
    "template", ["{topic", "{}", "{topic!r}", "{topic.x}", "{topic:>9}", "{t}", "a b", "{{x}}", ""]
)
def test_a_template_that_names_no_topic_is_refused(template: str) -> None:
    assert why_no_template(template) is not None


def test_a_dead_letter_topic_is_known_by_every_way_to_read_its_name() -> None:
    template = "{topic}-{subscription}-DLQ"
    assert holds_dead_letters(template, "a-b-c-DLQ", {"a"}.__contains__)
    assert holds_dead_letters(template, "a-b-c-DLQ", {"a-b"}.__contains__)
    assert not holds_dead_letters(template, "a-b-c-DLQ", {"c"}.__contains__)
    assert holds_dead_letters("dead", "dead", lambda _: False)
