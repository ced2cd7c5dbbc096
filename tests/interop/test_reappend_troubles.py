"""Pauses between the tries to append messages again."""

from __future__ import annotations

from spark_cursor_source.interop.reappend_troubles import ReappendPauses

PLACES = {(0, 7): 3, (0, 8): 3}


def test_a_topic_that_fails_late_is_left_alone_and_what_comes_meanwhile_is_put_off() -> None:
    # 0 fails after 5 s: left alone for 15 s | what is due meanwhile is not tried
    troubles = ReappendPauses()
    assert troubles.failed({(0, 7): "no answer"}, PLACES, alone=(), spent_ms=5_000) == {(0, 7): 15_000}
    assert troubles.closed == "no answer"
    (pause_ms,) = troubles.put_off([(0, 8)], "no answer").values()
    assert 10_000 < pause_ms <= 15_000
    assert troubles.of(3) == ("no answer", 1), "the second one was not tried"


def test_a_message_that_is_refused_for_itself_holds_up_no_other_however_long_it_took() -> None:
    troubles = ReappendPauses()
    assert troubles.failed({(0, 7): "too large"}, PLACES, alone=[(0, 7)], spent_ms=9_000) == {(0, 7): 2_000}
    assert troubles.closed is None
