"""Actions of the page: off by default, with a token and a form of this page only, and with an author."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

import anyio
import pytest
from starlette.testclient import TestClient

from spark_cursor_source.admin import read_audit
from spark_cursor_source.admin.subscriptions import EARLIEST, Subscriptions
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import CommandWaits
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.tracker import Tracker
from spark_cursor_source.ui import Collector, create_app
from spark_cursor_source.ui.access import form_key_of
from tests.admin.letter_queue import Queue
from tests.kafka.control_plane import Control, control_on, produce
from tests.ui.conftest import settings_of
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

TOKEN = "right"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def tracked(broker: EmbeddedKafka) -> Iterator[Control]:
    """A subscription `billing` of a queue, whose tracker runs."""
    control = control_on(broker).create()
    ClusterAdmin(control.config).create({control.queue: (1, {})})
    options = control.options(trigger="20ms", takeOver="true")
    names = {**control.topics, **control.groups}
    with Tracker(options), Subscriptions(control.config, **names) as subscriptions:
        subscriptions.create("billing", control.queue, EARLIEST)
        yield control


@pytest.fixture(scope="module")
def page(tracked: Control) -> Iterator[TestClient]:
    settings = settings_of(tracked, token=TOKEN, allow_actions=True)
    with Collector(settings) as collector:
        wait_until(lambda: bool(collector.snapshot.rows))
        yield TestClient(create_app(collector, settings), base_url="http://localhost", headers=BEARER)


def form_of(text: str) -> dict[str, str]:
    """The hidden fields of the form of a page."""
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', text)
    return {name: html.unescape(value) for name, value in found}


def act(page: TestClient, text: str) -> str:
    """The answer to the form of a page."""
    return page.post("/act", data=form_of(text)).text


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
    shown = {"topic": tracked.queue, "name": "billing"}
    wait_until(lambda: "An operator paused it" in page.get("/subscription", params=shown).text)
    assert ">paused</span>" in page.get("/").text
    asked = page.get("/confirm", params={"do": "resume", "topic": tracked.queue, "name": "billing"})
    assert "the pause ends on 1 partition" in page.post("/act", data=form_of(asked.text)).text


FIRST_MS = 1_700_000_000_000


@pytest.fixture
def moved(tracked: Control, request: pytest.FixtureRequest) -> dict[str, str]:
    """Fields of a new subscription of a queue with ten messages, a second apart."""
    topic, name = f"{tracked.queue}-moved", f"of-{request.node.name[-20:]}"
    if not ClusterAdmin(tracked.config).existing([topic]):
        ClusterAdmin(tracked.config).create({topic: (1, {})})
        produce(
            tracked.config,
            topic,
            [{"value": b"v", "timestamp": FIRST_MS + 1_000 * at} for at in range(10)],
        )
    names = {**tracked.topics, **tracked.groups}
    with Subscriptions(tracked.config, **names) as subscriptions:
        subscriptions.create(name, topic, EARLIEST)
    return {"topic": topic, "name": name}


def cells_of(text: str) -> list[list[str]]:
    """The rows of the body of the table of a page."""
    rows = re.findall(r"<tr>(<th scope=.row.*?)</tr>", text, re.DOTALL)
    return [re.findall(r"<t[hd][^>]*>([^<]*)<", row) for row in rows]


def test_a_seek_asks_for_its_position_and_shows_its_effect_before(
    page: TestClient, moved: dict[str, str], tracked: Control
) -> None:
    asked = page.get("/confirm", params={"do": "seek"} | moved)
    assert "Reading goes on from a position" in asked.text
    assert form_of(asked.text) == {"do": "seek"} | moved
    at = {"how": "time", "time": "2023-11-14T22:13:24Z"}
    shown = page.get("/confirm", params={"do": "seek"} | moved | at)
    assert "0 messages will come again, 4 messages will be dropped" in shown.text
    assert cells_of(shown.text) == [["0", "0", "4", "0", "4"]]
    assert f"{moved['name']} goes on at offset 4 of partition 0." in act(page, shown.text)
    shown = page.get("/confirm", params={"do": "seek", "how": "earliest"} | moved)
    assert "4 messages will come again" in shown.text
    shown = page.get("/confirm", params={"do": "seek", "how": "offsets", "offsets": "0=2"} | moved)
    assert "offset 2 of partition 0" in act(page, shown.text)
    (latest, *_) = read_audit(tracked.config, topic=moved["topic"], markers_topic=tracked.markers)
    assert latest.action == "seek"
    assert latest.author.endswith("by cursorq ui")


def test_a_time_later_than_kafka_knows_is_the_end(page: TestClient, moved: dict[str, str]) -> None:
    given = {"do": "seek", "how": "time", "time": str(2**63)} | moved
    assert cells_of(page.get("/confirm", params=given).text) == [["0", "0", "10", "0", "10"]]
    given = {"do": "expire", "how": "before", "before": str(2**63)} | moved
    assert "10 messages will be dropped" in page.get("/confirm", params=given).text


def test_a_skip_asks_for_the_number_of_messages(page: TestClient, moved: dict[str, str]) -> None:
    assert "count as acked" in page.get("/confirm", params={"do": "skip"} | moved).text
    given = {"do": "skip", "how": "count", "messages": "3", "partition": "0"} | moved
    shown = page.get("/confirm", params=given)
    assert "Skip the next 3 messages" in shown.text
    assert "nothing left below offset 3 of partition 0" in act(page, shown.text)
    everything = page.get("/confirm", params={"do": "skip", "how": "all"} | moved)
    assert "7 messages will be dropped" in everything.text
    assert "nothing left below offset 10 of partition 0" in act(page, everything.text)


def test_a_form_that_arrives_twice_acts_once(page: TestClient, moved: dict[str, str]) -> None:
    # skip 3: twice at once, and again   undo: twice at once
    def twice(given: dict[str, str]) -> list[str]:
        with ThreadPoolExecutor(2) as clicks:
            return list(clicks.map(lambda _: deed_of(page.post("/act", data=given).text), range(2)))

    skip = {"do": "skip", "how": "count", "messages": "3"} | moved
    form = form_of(page.get("/confirm", params=skip).text)
    assert form["positions"] == "0=3", "the effect that was shown, and no other"
    assert twice(form) == [f"{moved['name']} has nothing left below offset 3 of partition 0."] * 2
    answer = page.post("/act", data=form, follow_redirects=False)
    assert answer.status_code == 303
    shown = page.get(answer.headers["location"])
    assert deed_of(shown.text) == deed_of(page.get(answer.headers["location"]).text)
    undo = page.get("/confirm", params={"do": "undo"} | moved)
    assert "3 messages will come again, 0 messages will be dropped" in undo.text
    assert twice(form_of(undo.text)) == [f"{moved['name']} goes on at offset 0 of partition 0."] * 2
    assert cells_of(page.get("/confirm", params=skip).text) == [["0", "0", "3", "0", "3"]]
    assert page.get("/done", params={"form": "another"}).status_code == 404


def test_a_command_that_waits_for_a_tracker_is_not_called_undone(
    page: TestClient, moved: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(*_: object) -> None:
        raise CommandWaits(1, 60_000, "markers", "cursors")

    asked = page.get("/confirm", params={"do": "skip", "how": "all"} | moved)
    monkeypatch.setattr(Subscriptions, "skip_to", wait)
    text = act(page, asked.text)
    assert "<h1>Not done yet</h1>" in text
    assert "do not repeat it" in text


def test_the_last_move_is_undone_and_that_too(page: TestClient, moved: dict[str, str]) -> None:
    asked = page.get("/confirm", params={"do": "undo"} | moved)
    assert "Nothing was done" in asked.text
    assert "has nothing to undo" in asked.text
    act(page, page.get("/confirm", params={"do": "skip", "how": "all"} | moved).text)
    shown = page.get("/confirm", params={"do": "undo"} | moved)
    assert "10 messages will come again, 0 messages will be dropped" in shown.text
    assert cells_of(shown.text) == [["0", "10", "0", "10", "0"]]
    assert f"{moved['name']} goes on at offset 0 of partition 0." in act(page, shown.text)
    shown = page.get("/confirm", params={"do": "undo"} | moved)
    assert "0 messages will come again, 10 messages will be dropped" in shown.text
    assert "goes on at offset 10 of partition 0" in act(page, shown.text)


def test_an_expiry_sends_the_time_that_its_effect_was_shown_for(
    page: TestClient, moved: dict[str, str]
) -> None:
    assert "older than a time" in page.get("/confirm", params={"do": "expire"} | moved).text
    shown = page.get("/confirm", params={"do": "expire", "how": "age", "age": "1d"} | moved)
    assert "10 messages will be dropped" in shown.text
    assert form_of(shown.text)["how"] == "before"
    given = {"do": "expire", "how": "before", "before": str(FIRST_MS + 6_000)} | moved
    shown = page.get("/confirm", params=given)
    assert "6 messages will be dropped" in shown.text
    assert "nothing left below offset 6 of partition 0" in act(page, shown.text)
    assert "has no older message" in act(page, page.get("/confirm", params=given).text)


def deed_of(text: str) -> str:
    """The sentence about an action that was done."""
    (told,) = re.findall(r'<p role="status">(.*?)</p>', text)
    return html.unescape(told)


def deed(page: TestClient, text: str) -> str:
    """Do the action of the form of a page."""
    return deed_of(act(page, text))


def test_a_snapshot_is_named_taken_listed_and_restored(
    page: TestClient, moved: dict[str, str], tracked: Control
) -> None:
    # 0 snapshot "before" · skip 4 · restore "before" -> 0 · forget
    name = moved["name"]
    asked = page.get("/confirm", params={"do": "snapshot"} | moved)
    assert 'name="snapshot"' in asked.text
    assert form_of(asked.text) == {"do": "snapshot"} | moved
    named = {"do": "snapshot", "snapshot": "before <7>"} | moved
    shown = page.get("/confirm", params=named)
    assert "It replaces" not in shown.text
    assert deed(page, shown.text) == f"{name} is saved as 'before <7>' at offset 0 of partition 0."
    assert "It replaces the snapshot of this name from 2" in page.get("/confirm", params=named).text

    where = {"topic": moved["topic"], "name": name}
    wait_until(lambda: "before &lt;7&gt;" in page.get("/subscription", params=where).text)
    listed = page.get("/subscription", params=where).text
    for verb in ("restore", "clone", "forget"):
        assert f'id="{verb}-of-before &lt;7&gt;"' in listed
    act(page, page.get("/confirm", params={"do": "skip", "how": "count", "messages": "4"} | moved).text)
    wait_until(lambda: "state before the last move" in page.get("/subscription", params=where).text)

    shown = page.get("/confirm", params={"do": "restore", "snapshot": "before <7>"} | moved)
    assert "4 messages will come again, 0 messages will be dropped" in shown.text
    assert cells_of(shown.text) == [["0", "4", "0", "4", "0"]]
    assert deed(page, shown.text) == f"{name} goes on at offset 0 of partition 0."
    shown = page.get("/confirm", params={"do": "forget", "snapshot": "before <7>"} | moved)
    assert deed(page, shown.text) == f"{name} has no snapshot 'before <7>' any more."
    told = [
        one.action
        for one in read_audit(
            tracked.config, topic=moved["topic"], subscription=name, markers_topic=tracked.markers
        )
    ]
    assert told[:2] == ["forget snapshot before <7>", "restore snapshot before <7>"]
    assert "take snapshot before <7>" in told


def test_limits_are_asked_for_set_shown_and_removed(
    page: TestClient, moved: dict[str, str], tracked: Control
) -> None:
    name = moved["name"]
    asked = page.get("/confirm", params={"do": "limit"} | moved)
    assert re.findall(r'<input type="text" name="(\w+)"[^>]* value="([^"]*)"', asked.text) == [
        ("rate", ""),
        ("max_outstanding", ""),
    ]
    given = {"do": "limit", "rate": "2.5", "max_outstanding": ""} | moved
    shown = page.get("/confirm", params=given)
    assert f"Limit {name} to 2.5 messages per second?" in shown.text
    assert deed(page, shown.text) == f"{name} is limited to 2.5 messages per second."
    (latest, *_) = read_audit(tracked.config, subscription=name, markers_topic=tracked.markers)
    assert latest.action == "limit to 2.5 messages per second"
    assert latest.author.endswith("by cursorq ui")
    wait_until(lambda: "<dt>Rate limit</dt><dd>2.5 /s" in page.get("/subscription", params=moved).text)
    asked = page.get("/confirm", params={"do": "limit"} | moved)
    assert ' value="2.5"' in asked.text, "the present limit can be changed"
    shown = page.get("/confirm", params=given | {"rate": "", "max_outstanding": "70"})
    assert deed(page, shown.text) == f"{name} is limited to 70 outstanding messages."
    shown = page.get("/confirm", params=given | {"rate": ""})
    assert deed(page, shown.text) == f"{name} has no limits."
    wait_until(lambda: "limit</dt>" not in page.get("/subscription", params=moved).text)
    for wrong, why in (
        ("fast", "give messages per second, or none"),
        ("0", "to stop a subscription, pause it"),
    ):
        refused = page.get("/confirm", params=given | {"rate": wrong})
        assert "Nothing was done" in refused.text
        assert why in refused.text


def test_a_clone_asks_for_its_name_and_begins_where_its_original_is(
    page: TestClient, moved: dict[str, str]
) -> None:
    act(page, page.get("/confirm", params={"do": "snapshot", "snapshot": "then"} | moved).text)
    act(page, page.get("/confirm", params={"do": "skip", "how": "count", "messages": "4"} | moved).text)
    assert 'name="target"' in page.get("/confirm", params={"do": "clone"} | moved).text
    target = f"{moved['name']}-2"
    shown = page.get("/confirm", params={"do": "clone", "target": target} | moved)
    assert f"It begins with the present state of {moved['name']}: 0 outstanding messages" in shown.text
    assert cells_of(shown.text) == [["0", "4", "0"]]
    assert deed(page, shown.text) == f"{target} begins at offset 4 of partition 0."
    again = page.get("/confirm", params={"do": "clone", "target": target} | moved)
    assert "Nothing was done" in again.text, "the name is taken"
    asked = page.get("/confirm", params={"do": "clone", "snapshot": "then"} | moved)
    assert form_of(asked.text) == {"do": "clone", "snapshot": "then"} | moved
    shown = page.get("/confirm", params=form_of(asked.text) | {"target": f"{target}-3"})
    assert cells_of(shown.text) == [["0", "0", "0"]]
    assert deed(page, shown.text) == f"{target}-3 begins at offset 0 of partition 0."


@pytest.mark.parametrize(
    "given",
    [
        {"do": "seek", "how": "time", "time": "yesterday"},
        {"do": "seek", "how": "offsets", "offsets": "0"},
        {"do": "seek", "how": "offsets", "offsets": "0=" + "9" * 5_000},
        {"do": "seek", "how": "offsets", "offsets": "9" * 19 + "=1"},
        {"do": "skip", "how": "count", "messages": "many"},
        {"do": "skip", "how": "count", "messages": "0"},
        {"do": "skip", "how": "all", "partition": "0"},
        {"do": "expire", "how": "age", "age": "old"},
        {"do": "expire", "how": "before"},
        {"do": "snapshot", "snapshot": " "},
        {"do": "snapshot", "snapshot": "undo"},
        {"do": "restore", "snapshot": "never"},
        {"do": "clone", "target": ""},
        {"do": "clone", "target": "other", "snapshot": "never"},
    ],
)
def test_a_value_that_cannot_be_is_an_error_of_the_page(
    page: TestClient, tracked: Control, given: dict[str, str]
) -> None:
    answer = page.get("/confirm", params=given | {"topic": tracked.queue, "name": "billing"})
    assert answer.status_code == 200
    assert "Nothing was done" in answer.text
    assert 'role="alert"' in answer.text


def test_actions_are_offered_only_where_they_are_on(page: TestClient, tracked: Control) -> None:
    where = {"topic": tracked.queue, "name": "billing"}
    assert "seek …" in page.get("/subscription", params=where).text
    settings = settings_of(tracked)
    with Collector(settings) as collector:
        wait_until(lambda: bool(collector.snapshot.rows))
        other = TestClient(create_app(collector, settings), base_url="http://localhost")
        assert "seek …" not in other.get("/subscription", params=where).text
        assert other.get("/confirm", params={"do": "seek"} | where).status_code == 403


def test_a_form_that_this_page_has_not_made_does_nothing(page: TestClient, tracked: Control) -> None:
    fields = {"do": "pause", "topic": tracked.queue, "name": "billing"}
    before = read_audit(tracked.config, markers_topic=tracked.markers)
    assert page.post("/act", data=fields).status_code == 403
    assert page.post("/act", data=fields | {"key": "guessed"}).status_code == 403
    asked = form_of(page.get("/confirm", params=fields).text)
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert page.post("/act", data=asked, headers=headers).status_code == 403
    assert page.post("/act", data=asked, headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert page.post("/act", content=b"x" * 2_000_000).status_code == 413
    assert page.post("/act", data=asked | {"do": "burn"}).status_code == 400
    assert page.get("/act").status_code == 405
    assert read_audit(tracked.config, markers_topic=tracked.markers) == before


def test_a_form_that_is_cut_off_is_no_error_of_the_server_and_does_nothing(tracked: Control) -> None:
    settings = settings_of(tracked, token=TOKEN, allow_actions=True)
    app = create_app(Collector(settings), settings)
    fields = urlencode({"do": "pause", "topic": tracked.queue, "name": "billing", "key": form_key_of(TOKEN)})
    received: list[dict[str, object]] = [
        {"type": "http.request", "body": f"{fields}&form=cut".encode(), "more_body": True},
        {"type": "http.disconnect"},
    ]
    sent: list[dict[str, object]] = []

    async def receive() -> dict[str, object]:
        return received.pop(0)

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {TOKEN}".encode())]
    scope = {"type": "http", "method": "POST", "path": "/act", "query_string": b"", "headers": headers}
    before = read_audit(tracked.config, markers_topic=tracked.markers)
    anyio.run(app, scope, receive, send)
    assert sent[0]["status"] == 400
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


def test_the_dead_letters_that_an_action_is_about_are_named_before_it(
    page: TestClient, tracked: Control
) -> None:
    letters = f"{tracked.queue}-billing-DLQ"
    ClusterAdmin(tracked.config).create({letters: (1, {})})
    errors = [b"BankClosed: account 17", b"BankClosed: account 18", b""]
    origin = (("topic", tracked.queue.encode()), ("partition", b"0"), ("subscription", b"billing"))
    produce(
        tracked.config,
        letters,
        [
            {
                "headers": [
                    ("cursorq-reason", b"rejected"),
                    ("cursorq-error", error),
                    ("cursorq-offset", b"%d" % at),
                    *((f"cursorq-{name}", value) for name, value in origin),
                ]
            }
            for at, error in enumerate(errors)
        ],
    )
    given = {"letters": letters, "subscription": "billing", "reason": "rejected"}
    for do, button in (("redrive", "Redrive 2"), ("delete", "Delete 2")):
        group = {"do": do, "template": "BankClosed: account <n>"} | given
        text = html.unescape(page.get("/confirm", params=group).text)
        assert "Subscription billing, reason rejected, error BankClosed: account <n>." in text
        assert button in text
        text = page.get("/confirm", params={"do": do, "template": ""} | given).text
        assert "Subscription billing, reason rejected, no error." in text
    text = page.get("/confirm", params={"do": "redrive", "letters": letters}).text
    assert "All dead letters of the topic." in text


def test_dead_letters_of_a_missing_topic_are_an_error_on_the_page(page: TestClient) -> None:
    assert 'role="alert"' in page.get("/dead", params={"letters": "no-such-topic"}).text
    assert "No dead letters" in page.get("/dead").text


def test_a_group_of_dead_letters_is_deleted_and_all_of_a_topic_are_not(
    page: TestClient, tracked: Control
) -> None:
    queue = Queue(tracked.config["bootstrap.servers"])
    queue.bury(queue.letter((0, 2), error="Test"), queue.letter((2, 3), error="Timeout"))
    asked = page.get("/confirm", params={"do": "delete", "letters": queue.dead})
    assert "it has no criterion" in asked.text
    group = {"subscription": "billing", "reason": "rejected", "template": "Test"}
    asked = page.get("/confirm", params={"do": "delete", "letters": queue.dead} | group)
    assert "Delete 2 dead letters" in asked.text
    assert "2 dead letters deleted, 1 passed over" in act(page, asked.text)


def test_the_doctor_answers(page: TestClient) -> None:
    assert "<h1>Doctor</h1>" in page.get("/doctor").text
