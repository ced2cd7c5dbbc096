"""The oldest versions with which ``make test-oldest`` runs."""

from __future__ import annotations

import pytest

from tools.oldest import oldest_of, read_project


def test_each_dependency_of_a_user_has_a_lower_bound() -> None:
    oldest = dict(oldest_of(read_project()))
    assert oldest["confluent-kafka"] == "2.11"  # also where an extra asks for a later one
    assert {"pyarrow", "protobuf", "pyspark", "pandas", "typer"} <= oldest.keys()
    assert not oldest.keys() & {"pytest", "sphinx", "spark-cursor-source"}


def test_a_dependency_without_a_lower_bound_is_refused() -> None:
    project = {"name": "p", "dependencies": ["a>=1"], "optional-dependencies": {"more": ["a", "b[c]<3"]}}
    with pytest.raises(ValueError, match=r"b\[c\]<3 has no lower bound"):
        dict(oldest_of(project))
