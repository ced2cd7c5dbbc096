"""Actions of the page: off by default, with a token and a form of this page only, and with an author."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from spark_cursor_source.admin import read_audit
from spark_cursor_source.admin.subscriptions import EARLIEST, Subscriptions
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.tracker import Tracker
from spark_cursor_source.ui import Collector, create_app
from tests.kafka.control_plane import Control, eventually, new_control
from tests.ui.conftest import settings_of

pytestmark = pytest.mark.broker

TOKEN = "right"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def tracked(broker: EmbeddedKafka) -> Iterator[Control]:
    """A subscription `billing` of a queue, whose tracker runs."""
    control = new_control({"bootstrap.servers": broker.bootstrap_servers})
    ClusterAdmin(control.config).create({control.queue: (1, {})})
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "trigger": "20ms",
        "takeOver": "true",
        "markersTopic": control.markers,
        "redeliveriesTopic": control.redeliveries,
        "cursorsTopic": control.cursors,
    }
    names = {"markers_topic": control.markers, "cursors_topic": control.cursors}
    with Tracker(options), Subscriptions(control.config, **names) as subscriptions:
        subscriptions.create("billing", control.queue, EARLIEST)
        yield control


@pytest.fixture(scope="module")
def page(tracked: Control) -> Iterator[TestClient]:
    settings = settings_of(tracked, token=TOKEN, allow_actions=True)
    with Collector(settings) as collector:
        eventually(lambda: bool(collector.snapshot.rows))
        yield TestClient(create_app(collector, settings), base_url="http://localhost", headers=BEARER)


def form_of(text: str) -> dict[str, str]:
    """The hidden fields of the form of a page."""
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', text))


def test_an_action_is_announced_confirmed_done_and_in_the_audit_with_its_author(
    page: TestClient, tracked: Control
) -> None:
    asked = page.get("/confirm", params={"do": "pause", "topic": tracked.queue, "name": "billing"})
    assert "Pause billing on" in asked.text
    done = page.post("/act", data=form_of(asked.text))
    assert "billing is paused on 1 partition." in done.text
    (latest, *_) = read_audit(tracked.config, markers_topic=tracked.markers)
    assert "pause" in latest.action
    assert latest.author.endswith("by cursorq ui")
    assert "by cursorq ui" in page.get("/audit").text
    asked = page.get("/confirm", params={"do": "resume", "topic": tracked.queue, "name": "billing"})
    assert "the pause ends on 1 partition" in page.post("/act", data=form_of(asked.text)).text


def test_a_form_that_this_page_has_not_made_does_nothing(page: TestClient, tracked: Control) -> None:
    fields = {"do": "pause", "topic": tracked.queue, "name": "billing"}
    before = read_audit(tracked.config, markers_topic=tracked.markers)
    assert page.post("/act", data=fields).status_code == 403
    assert page.post("/act", data=fields | {"key": "guessed"}).status_code == 403
    asked = form_of(page.get("/confirm", params=fields).text)
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert page.post("/act", data=asked, headers=headers).status_code == 403
    assert page.post("/act", data=asked, headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert page.post("/act", content=b"x" * 100_000).status_code == 413
    assert page.post("/act", data=asked | {"do": "burn"}).status_code == 400
    assert page.get("/act").status_code == 405
    assert read_audit(tracked.config, markers_topic=tracked.markers) == before


def test_actions_are_off_by_default(tracked: Control) -> None:
    settings = settings_of(tracked, token=TOKEN)
    page = TestClient(create_app(Collector(settings), settings), base_url="http://localhost", headers=BEARER)
    assert page.get("/confirm", params={"do": "pause"}).status_code == 403
    assert page.post("/act", data={"do": "pause"}).status_code == 403


def test_an_error_of_an_action_is_on_the_page(page: TestClient) -> None:
    asked = form_of(page.get("/confirm", params={"do": "pause", "topic": "t", "name": "nobody"}).text)
    answer = page.post("/act", data=asked)
    assert "Nothing was done" in answer.text
    assert "nobody" in answer.text


def test_dead_letters_of_a_missing_topic_are_an_error_on_the_page(page: TestClient) -> None:
    assert 'role="alert"' in page.get("/dead", params={"letters": "no-such-topic"}).text
    assert "No dead letters" in page.get("/dead").text


def test_the_doctor_answers(page: TestClient) -> None:
    assert "<h1>Doctor</h1>" in page.get("/doctor").text
