"""The broker's time, as the tracker tells it: never ahead, never backwards."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cursor_source.core.broker_clock import BrokerClock

MINUTE_MS, DAY_MS = 60_000, 86_400_000


def test_before_the_first_reading_there_is_no_time() -> None:
    assert BrokerClock().now_ms(monotonic_ms=10**9) is None


def test_time_goes_on_without_readings() -> None:
    # broker: 1,000,000 at 10; nothing more is read
    clock = BrokerClock()
    clock.observe(broker_ms=1_000_000, monotonic_ms=10)
    assert clock.now_ms(monotonic_ms=10) == 1_000_000
    assert clock.now_ms(monotonic_ms=5_010) == 1_005_000
    late = clock.now_ms(monotonic_ms=10 + 10 * MINUTE_MS)
    assert late is not None
    assert 1_000_000 + 10 * MINUTE_MS - 60 <= late <= 1_000_000 + 10 * MINUTE_MS


def test_a_record_that_was_read_late_takes_nothing_back() -> None:
    # a record that was appended 30 s ago says less than is known
    clock = BrokerClock()
    clock.observe(broker_ms=1_000_000, monotonic_ms=0)
    clock.observe(broker_ms=971_000, monotonic_ms=1_000)
    assert clock.now_ms(monotonic_ms=1_000) == 1_001_000


def test_the_best_of_the_readings_counts() -> None:
    # the first one was read 30 s after it was appended
    clock = BrokerClock()
    clock.observe(broker_ms=970_000, monotonic_ms=0)
    clock.observe(broker_ms=1_001_000, monotonic_ms=1_000)
    assert clock.now_ms(monotonic_ms=2_000) == 1_002_000


def test_a_new_leader_whose_clock_is_behind_is_believed_in_the_end_and_time_waits_for_it() -> None:
    # the old leader is 5 s ahead of the new one
    clock = BrokerClock()
    clock.observe(broker_ms=1_005_000, monotonic_ms=0)
    times = []
    for second in range(0, 1_200, 10):
        clock.observe(broker_ms=1_000_000 + second * 1_000, monotonic_ms=second * 1_000)
        now = clock.now_ms(monotonic_ms=second * 1_000)
        assert now is not None
        times.append(now)
    assert times == sorted(times)
    assert times[-1] == 1_000_000 + 1_190_000, "ten minutes later nobody speaks of the old one"


def test_a_clock_goes_on_from_where_it_was_before_a_restart() -> None:
    # the checkpoint says 2,000,000; the log was last written at 1,500,000
    clock = BrokerClock(now_ms=2_000_000)
    assert clock.now_ms(monotonic_ms=7) == 2_000_000
    clock.observe(broker_ms=1_500_000, monotonic_ms=7)
    assert clock.now_ms(monotonic_ms=8) == 2_000_000
    clock.observe(broker_ms=2_000_001, monotonic_ms=9)
    assert clock.now_ms(monotonic_ms=10) == 2_000_002


def test_a_new_leader_whose_clock_is_ahead_moves_no_time_ahead() -> None:
    # epoch 1: the truth   a lease of 60 s begins   epoch 2: 61 s ahead, for ten minutes and more
    clock = BrokerClock()
    clock.observe(broker_ms=1_000_000, monotonic_ms=1_000, epoch=1)
    for second in range(1, 1_500, 10):
        monotonic_ms = 1_000 + second * 1_000
        clock.observe(broker_ms=1_061_000 + second * 1_000, monotonic_ms=monotonic_ms, epoch=2)
        now = clock.now_ms(monotonic_ms=monotonic_ms)
        assert now is not None
        assert 1_000_000 + second * 1_000 - 200 <= now <= 1_000_000 + second * 1_000


def test_a_new_leader_whose_clock_is_behind_does_not_hold_time_up() -> None:
    clock = BrokerClock()
    clock.observe(broker_ms=1_005_000, monotonic_ms=1_000, epoch=1)
    clock.observe(broker_ms=1_001_000, monotonic_ms=2_000, epoch=2)
    assert clock.now_ms(monotonic_ms=12_000) == 1_015_999, "eleven seconds, less what clocks drift apart"
    # The record with the latest timestamp is still the earlier leader's for a while.
    clock.observe(broker_ms=1_005_000, monotonic_ms=12_000, epoch=1)
    assert clock.now_ms(monotonic_ms=12_000) == 1_015_999


def test_a_record_of_a_new_leader_that_was_read_late_moves_no_time_ahead_either() -> None:
    # its first record is 20 s old when it is read, the next one is read at once
    clock = BrokerClock()
    clock.observe(broker_ms=1_000_000, monotonic_ms=1_000, epoch=1)
    clock.observe(broker_ms=1_070_000, monotonic_ms=31_000, epoch=2)
    clock.observe(broker_ms=1_091_000, monotonic_ms=32_000, epoch=2)
    assert clock.now_ms(monotonic_ms=32_000) == 1_030_997


waits_ms = st.sampled_from([0, 1, 40, 1_000, 30_000, 11 * MINUTE_MS, DAY_MS]) | st.integers(0, 5_000)
readings = st.lists(st.tuples(waits_ms, waits_ms, st.booleans()), min_size=1, max_size=30)
drifts = st.integers(-99, 99)


@settings(max_examples=120, deadline=None)
@given(readings, drifts, st.integers(0, 10**9))
def test_it_is_a_lower_bound_that_never_runs_backwards_though_the_clocks_drift_apart(
    history: list[tuple[int, int, bool]], ppm: int, begin_ms: int
) -> None:
    def broker_ms(monotonic_ms: int) -> int:
        return 1_700_000_000_000 + monotonic_ms + (monotonic_ms - begin_ms) * ppm // 1_000_000

    clock, monotonic_ms, before = BrokerClock(), begin_ms, None
    for pause_ms, age_ms, read in history:
        monotonic_ms += pause_ms
        if read:
            clock.observe(
                broker_ms=broker_ms(max(monotonic_ms - age_ms, begin_ms)), monotonic_ms=monotonic_ms
            )
        now = clock.now_ms(monotonic_ms=monotonic_ms)
        assert (now is None) == (before is None and not read)
        if now is not None:
            assert now <= broker_ms(monotonic_ms) + 1, "a deadline would be over too early"
            assert before is None or now >= before
        before = now


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 60_000), min_size=1, max_size=40), drifts)
def test_while_markers_are_read_at_once_it_lags_by_little(pauses_ms: list[int], ppm: int) -> None:
    clock, monotonic_ms = BrokerClock(), 0
    for pause_ms in pauses_ms:
        monotonic_ms += pause_ms
        broker_ms = 10**12 + monotonic_ms + monotonic_ms * ppm // 1_000_000
        clock.observe(broker_ms=broker_ms, monotonic_ms=monotonic_ms)
        later_ms = monotonic_ms + 1_000
        now = clock.now_ms(monotonic_ms=later_ms)
        assert now is not None
        assert broker_ms + 1_000 - now <= 2, "one of drift, one of rounding"
