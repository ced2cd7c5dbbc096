"""The tree of errors: each one says its facts and the next move, also after the way from a worker."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_cursor_source import errors

HERE = Path(__file__).resolve()
ERRORS: list[type[errors.CursorqError]] = [getattr(errors, name) for name in errors.__all__]
KINDS = [error for error in ERRORS if error.__subclasses__()]
RAISED = [error for error in ERRORS if error not in KINDS]
FIELDS = [error for error in ERRORS if "__init__" in vars(error)]

FACTS = {
    "bool": True,
    "int": 3,
    "int | None": 4,
    "object": 5,
    "object | None": 6,
    "str": "a {word}",
    "str | None": "another",
    "tuple[int, int]": (7, 8),
    "tuple[str, ...]": ("these", "those"),
}


def pickled(error: errors.CursorqError) -> errors.CursorqError:
    return pickle.loads(pickle.dumps(error))


def parameters_of(error: type[errors.CursorqError]) -> list[inspect.Parameter]:
    return list(inspect.signature(error.__init__).parameters.values())[1:]


def with_facts(error: type[errors.CursorqError]) -> errors.CursorqError:
    if error not in FIELDS:
        return error() if error.template else error("in words")
    return error(*(FACTS[parameter.annotation] for parameter in parameters_of(error)))


@pytest.mark.parametrize("way", [pickled, copy.copy, copy.deepcopy])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_an_error_is_the_same_on_the_other_side_of_a_pickle_and_as_a_copy(
    error: type[errors.CursorqError], way: Callable[[errors.CursorqError], errors.CursorqError]
) -> None:
    here = with_facts(error)
    there = way(here)
    assert type(there) is error
    assert str(there) == str(here) != ""
    assert (vars(there), there.args, repr(there)) == (vars(here), here.args, repr(here))


def test_a_cause_that_is_a_sentence_ends_with_one_period() -> None:
    cause = str(errors.InvalidDuration("soon"))
    text = str(errors.UnfitColumn("delay", "string", cause))
    assert "2h or 1d. Cast or correct it." in text
    assert "use ../topics. Give" in str(errors.InvalidOption("topic", "x", "use ../topics", "give another"))


@pytest.mark.parametrize("error", FIELDS, ids=lambda error: error.__name__)
def test_the_fields_of_an_error_are_given_by_position_or_by_name_and_are_its_args_and_attributes(
    error: type[errors.CursorqError],
) -> None:
    facts = {parameter.name: FACTS[parameter.annotation] for parameter in parameters_of(error)}
    named = error(**facts)
    assert (str(named), vars(named)) == (str(with_facts(error)), vars(with_facts(error)))
    assert named.args == tuple(facts.values())
    assert facts.items() <= vars(named).items()
    with pytest.raises(TypeError):
        error()


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_every_error_is_told_of_in_a_docstring_and_has_one_root(error: type[errors.CursorqError]) -> None:
    assert error.__doc__
    assert issubclass(error, errors.CursorqError)


def test_every_error_that_is_raised_is_met_by_name_in_another_test() -> None:
    others = [path for path in HERE.parent.rglob("*.py") if path != HERE]
    words = " ".join(path.read_text(encoding="utf-8") for path in others)
    assert [error.__name__ for error in RAISED if error.__name__ not in words] == []


def test_a_tracker_that_finds_a_shorter_markers_topic_names_the_way_out_for_a_new_cluster() -> None:
    shorter = str(errors.MarkersGone("markers", 3, 7, (0, 0)))
    assert "new topics in markersTopic" in shorter
    assert "new checkpoints" in shorter
