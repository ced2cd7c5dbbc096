"""The tree of errors: each one says its facts and the next move, also after the way from a worker."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path

import pytest

from spark_cursor_source import errors

HERE = Path(__file__).resolve()
ERRORS: list[type[errors.CursorqError]] = [getattr(errors, name) for name in errors.__all__]
KINDS = [error for error in ERRORS if error.__subclasses__()]
RAISED = [error for error in ERRORS if error not in KINDS]

FACTS = {
    "bool": True,
    "int": 3,
    "int | None": 4,
    "object": 5,
    "object | None": 6,
    "str": "a-word",
    "str | None": "another",
    "tuple[int, int]": (7, 8),
    "tuple[str, ...]": ("these", "those"),
}


def with_facts(error: type[errors.CursorqError]) -> errors.CursorqError:
    if "__init__" not in vars(error):
        return error("in words") if "__str__" not in vars(error) else error()
    parameters = list(inspect.signature(error.__init__).parameters.values())[1:]
    return error(*(FACTS[parameter.annotation] for parameter in parameters))


@pytest.mark.parametrize("error", RAISED, ids=lambda error: error.__name__)
def test_an_error_says_the_same_and_has_the_same_facts_on_the_other_side_of_a_pickle(
    error: type[errors.CursorqError],
) -> None:
    here = with_facts(error)
    there = pickle.loads(pickle.dumps(here))
    assert (type(there), str(there), vars(there)) == (error, str(here), vars(here))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_every_error_is_told_of_in_a_docstring_and_has_one_root(error: type[errors.CursorqError]) -> None:
    assert error.__doc__
    assert issubclass(error, errors.CursorqError)


def test_every_error_that_is_raised_is_met_by_name_in_another_test() -> None:
    others = [path for path in HERE.parent.rglob("*.py") if path != HERE]
    words = " ".join(path.read_text(encoding="utf-8") for path in others)
    assert [error.__name__ for error in RAISED if error.__name__ not in words] == []
