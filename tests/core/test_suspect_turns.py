"""How suspects and other messages take turns where there are no batches."""

from __future__ import annotations

from spark_cursor_source.core.suspect_turns import TURN_MS, SuspectTurns, Turn


def test_a_suspect_goes_when_nothing_else_is_held_and_others_wait_for_its_outcome() -> None:
    turns = SuspectTurns(lease_ms=60_000)
    assert turns.next(0, suspect=True, held=False, others=True) is Turn.SUSPECT
    assert turns.next(10, suspect=True, held=True, others=False) is Turn.WAIT
    assert turns.next(20, suspect=False, held=False, others=False) is Turn.OTHERS


def test_a_suspect_that_is_handled_for_long_holds_up_nobody_any_more() -> None:
    turns = SuspectTurns(lease_ms=3_600_000)
    assert turns.next(0, suspect=True, held=False, others=True) is Turn.SUSPECT
    assert turns.next(TURN_MS - 1, suspect=True, held=True, others=True) is Turn.WAIT
    assert turns.next(TURN_MS, suspect=True, held=True, others=True) is Turn.OTHERS


def test_a_message_that_is_held_for_an_hour_lets_the_others_go_every_other_turn() -> None:
    turns, waited = SuspectTurns(lease_ms=3_600_000), 0
    for now_ms in range(0, 100 * TURN_MS, 100):
        turn = turns.next(now_ms, suspect=True, held=True, others=True)
        assert turn is not Turn.SUSPECT
        waited += turn is Turn.WAIT
    assert 0.45 < waited * 100 / (100 * TURN_MS) < 0.55


def test_after_a_lease_of_waiting_the_suspect_goes_all_the_same() -> None:
    turns = SuspectTurns(lease_ms=12_000)
    went = next(
        now_ms
        for now_ms in range(0, 60_000, 100)
        if turns.next(now_ms, suspect=True, held=True, others=True) is Turn.SUSPECT
    )
    assert 12_000 <= went <= 30_000


def test_many_suspects_take_half_of_the_time_while_others_wait_and_all_of_it_where_none_do() -> None:
    for others, share in ((True, (0.4, 0.6)), (False, (0.95, 1.0))):
        turns, went_at, busy = SuspectTurns(lease_ms=60_000), -1_000, 0
        for now_ms in range(0, 100_000, 50):
            held = now_ms < went_at + 1_000
            turn = turns.next(now_ms, suspect=True, held=held, others=others and not held)
            if turn is Turn.SUSPECT:
                went_at = now_ms
            busy += turn is not Turn.OTHERS
        assert share[0] <= busy * 50 / 100_000 <= share[1]
