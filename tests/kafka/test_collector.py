"""What the garbage collector does not have to do."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from spark_cursor_source.kafka.collector import collector_paused

#: prints how many objects a collection visits before and after, and after a second call with a new object
EXEMPT = """\
import gc
import spark_cursor_source.kafka.admin
from spark_cursor_source.kafka.collector import exempt_loaded_modules
before = len(gc.get_objects())
exempt_loaded_modules()
after = len(gc.get_objects())
later = [[] for _ in range(5_000)]
exempt_loaded_modules()
print(before, after, len(gc.get_objects()))
"""


@pytest.fixture
def collector() -> Iterator[None]:
    """Whatever a test does, the collector is as before afterwards; the tests run without it."""
    was_enabled = gc.isenabled()
    yield
    (gc.enable if was_enabled else gc.disable)()


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_paused_and_then_as_before(enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()
    with collector_paused():
        assert not gc.isenabled()
    assert gc.isenabled() == enabled


def test_loaded_modules_are_exempt_and_what_comes_later_is_not() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", EXEMPT], capture_output=True, text=True, timeout=60, check=True
    )
    before, after, later = map(int, ran.stdout.split())
    assert before > 10_000
    assert after < 1_000
    assert later >= 5_000
