"""The pages of `cursorq ui`, as a browser gets them, of a cluster with a message in each state."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.message_state import MessageState
from spark_cursor_source.core.payload_mask import PayloadMask
from spark_cursor_source.errors import TopicNotFound
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.ui import Collector, UiSettings, create_app
from spark_cursor_source.ui.access import cookie_name_of
from spark_cursor_source.ui.last_errors import ErrorReader
from spark_cursor_source.ui.words import readable
from spark_cursor_source.wire.payload_avro import avro_decoder
from tests.kafka.control_plane import Control, new_control, offsets, produce
from tests.payload_schemas import avro_order, avro_schema
from tests.ui.conftest import Open, settings_of
from tests.waiting import wait_until

pytestmark = pytest.mark.broker


def test_the_overview_names_each_subscription_and_escapes_it(page: TestClient, queue: Control) -> None:
    text = page.get("/").text
    assert ">billing</a>" in text
    assert "&lt;b&gt;&amp;</a>" in text
    assert "<b>&" not in text
    assert "letters not written" in text
    assert "no consumers" in text


def test_the_overview_is_filtered_and_sorted(page: TestClient) -> None:
    assert "billing" not in page.get("/", params={"q": "<b>"}).text
    assert "No subscription matches" in page.get("/", params={"q": "nothing like it"}).text
    by_backlog = page.get("/", params={"sort": "backlog", "dir": "asc"}).text
    assert by_backlog.index(">billing</a>") < by_backlog.index("&lt;b&gt;&amp;</a>")
    assert page.get("/", params={"sort": "no such column", "rows": "all"}).status_code == 200


def test_a_subscription_shows_its_map_and_zooms_to_messages(page: TestClient, queue: Control) -> None:
    at = {"topic": queue.queue, "name": "billing"}
    text = page.get("/subscription", params=at).text
    assert "Hole map" in text
    assert "Dead letters cannot be written: no topic" in text
    zoomed = page.get("/subscription", params=at | {"partition": "0"}).text
    states = [
        "leased",
        "acked",
        "available",
        "delayed",
        "held",
        "blocked, waits for offset 0",
        "acked",
        "unread",
    ]
    for offset, state in enumerate(states):
        assert f'aria-label="offset {offset}, {state}"' in zoomed
    beyond = page.get("/subscription", params=at | {"partition": "0", "from": "900", "to": "100"})
    assert beyond.status_code == 200


def test_a_map_of_a_deleted_topic_shows_nothing_of_the_topic_that_has_its_name(
    collector: Collector, queue: Control
) -> None:
    snapshot, cell = collector.snapshot, Cell(subscription="billing", topic=queue.queue, partition=0)
    assert snapshot.view is not None
    gone = replace(snapshot, view=replace(snapshot.view, of_deleted=frozenset({cell})))
    ends = [None if one is None else one.log_end for one in (snapshot.map(cell), gone.map(cell))]
    assert ends == [10, None]


def test_a_subscription_that_is_not_there_is_said_so(page: TestClient) -> None:
    answer = page.get("/subscription", params={"topic": "t", "name": "<i>"})
    assert answer.status_code == 404
    assert "No subscription “&lt;i&gt;”" in answer.text


def test_a_message_shows_its_state_and_its_history(page: TestClient, queue: Control) -> None:
    text = page.get("/message", params={"topic": queue.queue, "partition": 0, "offset": 0}).text
    events = re.findall(r"<strong>(\w+)</strong>", text)
    assert events == ["START", "RELEASE", "START"]
    assert "&lt;i&gt;no bank&lt;/i&gt;" in text
    assert "leased" in text
    assert "order" not in text.partition("Content")[2], "the payload is shown on a click only"


def test_a_blocked_message_leads_to_the_one_that_it_waits_for(page: TestClient, queue: Control) -> None:
    at = {"topic": queue.queue, "partition": 0}
    text = page.get("/message", params=at | {"offset": 5}).text
    now, _, history = text.partition('id="history-title"')
    first = (
        rf'href="/message\?topic={queue.queue}&amp;partition=0&amp;offset=0&amp;name=billing">offset 0</a>'
    )
    assert re.search(f"waits for <a [^>]*{first}", now)
    assert re.findall(r"<strong>(\w+)</strong>", history) == ["BLOCK"]
    assert re.search(f"waits for <a {first}", history)
    assert "blocks 1 message<" in page.get("/message", params=at | {"offset": 0}).text
    assert "blocks" not in page.get("/message", params=at | {"offset": 2}).text
    subscription = page.get("/subscription", params={"topic": queue.queue, "name": "billing"}).text
    assert "<dt>Blocked</dt><dd>1<small>behind 1</small>" in subscription
    assert "<dt>Blocked</dt><dd>1<small>behind 1</small>" in page.get("/").text


def test_a_payload_is_shown_on_a_click_as_json_text_or_hex(page: TestClient, queue: Control) -> None:
    def payload(offset: int) -> str:
        at = {"topic": queue.queue, "partition": 0, "offset": offset}
        return page.get("/payload", params=at).text

    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in payload(0)
    assert "<script>" not in payload(0)
    assert ">plain</pre>" in payload(1)
    assert "ff 00" in payload(2)
    assert "trace" in payload(1)


def test_a_payload_cannot_turn_the_order_of_the_letters_that_are_shown_around_it() -> None:
    assert readable('{"to": "a\u202eb", "name": "\u05d0"}'.encode()).text == (
        '{\n  "to": "a\\u202eb",\n  "name": "\u05d0"\n}'
    )


def test_a_payload_with_a_lone_surrogate_can_be_sent_to_a_browser() -> None:
    assert readable(b'{"a":"\\ud800"}').text.encode() == b'{\n  "a": "\\ud800"\n}'


@pytest.mark.parametrize(
    ("data", "most", "form", "cut_to"),
    [
        (b"\xff" * 4_096, 65_536, "hex", None),
        (b"\xff" * 4_097, 65_536, "hex", 4_096),
        (b"\xff" * 70_000, 65_536, "hex", 4_096),
        (b"\xff" * 3_000, 2_048, "hex", 2_048),
        (b"a" * 65_537, 65_536, "text", 65_536),
        (b"\xc3\xa9" * 2, 3, "text", 3),
        (b'{"a": 1}', 4, "text", 4),
    ],
)
def test_a_payload_that_is_cut_says_how_much_is_shown(
    data: bytes, most: int, form: str, cut_to: int | None
) -> None:
    shown = readable(data, most=most)
    assert (shown.form, shown.cut_to) == (form, cut_to)


def test_parts_of_payloads_are_hidden(open_page: Open, queue: Control) -> None:
    def payload(page: TestClient, offset: int) -> str:
        return page.get("/payload", params={"topic": queue.queue, "partition": 0, "offset": offset}).text

    fields = open_page(mask=PayloadMask(fields=frozenset({"name", "trace"})))
    assert "&#34;order&#34;: 17" in payload(fields, 0)
    assert "&#34;name&#34;: &#34;***&#34;" in payload(fields, 0)
    assert "t-1" not in payload(fields, 0)
    everything = open_page(mask=PayloadMask(everything=True))
    for offset in range(3):
        text = payload(everything, offset)
        assert "hides parts" in text
        assert not any(one in text for one in ("order", "plain", "ff 00", "t-1", f"k{offset}"))


def test_a_value_with_a_schema_is_shown_as_json(open_page: Open, queue: Control, tmp_path: Path) -> None:
    page = open_page(
        decoder=avro_decoder(avro_schema(tmp_path)), mask=PayloadMask(fields=frozenset({"card"}))
    )
    typed = f"{queue.queue}-typed"
    ClusterAdmin(queue.config).create({typed: (1, {})})
    produce(queue.config, typed, [{"value": avro_order(17)}, {"value": b"plain"}])
    texts = [
        page.get("/payload", params={"topic": typed, "partition": 0, "offset": offset}).text
        for offset in (0, 1)
    ]
    assert "JSON, decoded from Avro" in texts[0]
    assert "&#34;order&#34;: 17" in texts[0]
    assert "&#34;card&#34;: &#34;***&#34;" in texts[0]
    assert "not decoded from Avro: it has another schema, or is cut" in texts[1]
    assert "plain" not in texts[1], "a value that cannot be decoded is hidden as a whole"


@pytest.mark.parametrize(
    "at",
    [
        {},
        {"partition": "9", "offset": "0"},
        {"partition": "0", "offset": "99"},
        {"partition": "0", "offset": "9" * 400},
    ],
)
def test_a_message_that_cannot_be_is_an_error_on_the_page(
    page: TestClient, queue: Control, at: dict[str, str]
) -> None:
    answer = page.get("/message", params={"topic": queue.queue} | at)
    assert answer.status_code == 404
    assert 'role="alert"' in answer.text
    assert 'role="alert"' in page.get("/payload", params={"topic": queue.queue} | at).text


@pytest.mark.parametrize("name", ["\0", "", "or ders", "." * 300])
def test_a_name_that_no_topic_can_have_is_an_error_on_the_page(page: TestClient, name: str) -> None:
    at = {"topic": name, "partition": "0", "offset": "1"}
    answer = page.get("/message", params=at)
    assert answer.status_code == 404
    for text in (answer.text, page.get("/payload", params=at).text):
        assert 'role="alert"' in text
    if name:
        assert 'role="alert"' in page.get("/dead", params={"letters": name}).text


def test_the_oldest_and_the_most_delivered_messages_are_listed(page: TestClient, queue: Control) -> None:
    oldest = page.get("/stuck").text
    row = r'id="k-\d+" href="[^"]*offset=(\d+)'
    assert [int(offset) for offset in re.findall(row, oldest)] == [0, 2, 3, 4, 5]
    assert (oldest.count("waits for <a"), oldest.count("blocks 1 message<")) == (1, 1)
    most = page.get("/stuck", params={"order": "most_delivered"}).text
    assert [int(offset) for offset in re.findall(row, most)][:2] == [4, 0]


def test_the_last_error_of_each_of_them_is_listed_once_it_is_read(page: TestClient, queue: Control) -> None:
    def errors(**query: str) -> list[str]:
        text = page.get("/stuck", params=query).text
        return re.findall(r'<td class="wrap">([^<]*|<span[^>]*>[^<]*</span>)</td>', text)

    wait_until(lambda: not any("…" in one for one in errors()))
    assert errors() == ["&lt;i&gt;no bank&lt;/i&gt;", "–", "–", "bad: no topic", "–"]
    assert errors(order="most_delivered")[:2] == ["bad: no topic", "&lt;i&gt;no bank&lt;/i&gt;"]


def test_errors_that_cannot_be_read_are_no_error_of_the_page(queue: Control) -> None:
    gone = replace(settings_of(queue), markers_topic=f"{queue.markers}-gone")
    reader = ErrorReader(gone)
    cell = Cell(subscription="billing", topic=queue.queue, partition=0)
    one = MessageState(
        subscription="billing", topic=queue.queue, partition=0, offset=0, state="delayed", delivery_count=1
    )
    for _ in range(2):
        assert reader.look([one], lambda: {cell: offsets((0, 1))}) == ((one, None),)
        reader.wait()
        assert isinstance(reader.failure, TopicNotFound)


def test_subscriptions_without_consumers_are_on_the_page_of_consumers(page: TestClient) -> None:
    text = page.get("/consumers").text
    assert "&lt;b&gt;&amp;</a>" in text
    assert "no consumer is connected" in text


def test_the_page_of_the_tracker_says_that_none_has_worked(page: TestClient, queue: Control) -> None:
    text = page.get("/tracker").text
    assert "No tracker has worked on this markers topic yet" in text
    assert queue.markers in text


def test_dead_letters_are_shown_over_time_and_by_group(page: TestClient, queue: Control) -> None:
    text = page.get("/dead", params={"letters": f"{queue.queue}-billing-DLQ"}).text
    chart = text.partition('class="curve bars"')[2].partition("</figure>")[0]
    assert re.findall(r"<title>2023-11-14 (\S+) UTC: (\d+)</title>", chart) == [
        ("22:13:20.000", "1"),
        ("22:14:20.000", "1"),
        ("22:15:20.000", "1"),
    ]
    assert "a bar is 10 s" in chart
    groups = re.findall(r'class="small-bars".*?</svg>', text, re.DOTALL)
    assert [one.count("<rect") for one in groups] == [2, 1]


def test_no_two_elements_of_the_dead_letters_share_an_id(open_page: Open, queue: Control) -> None:
    page = open_page(token="t", allow_actions=True)
    letters = {"letters": f"{queue.queue}-billing-DLQ"}
    text = page.get("/dead", params=letters, headers={"Authorization": "Bearer t"}).text
    ids = re.findall(r' id="([^"]*)"', text)
    assert sum(one.startswith("redrive-") for one in ids) == 2
    assert len(ids) == len(set(ids))


def test_each_time_that_is_shown_has_its_zone(page: TestClient, queue: Control) -> None:
    for path, query in (
        ("/subscription", {"topic": queue.queue, "name": "billing"}),
        ("/dead", {"letters": f"{queue.queue}-billing-DLQ"}),
        ("/message", {"topic": queue.queue, "partition": "0", "offset": "0"}),
    ):
        times = re.findall(r"\d\d:\d\d:\d\d(?:\.\d+)?(.{4})", page.get(path, params=query).text)
        assert times, path
        assert set(times) == {" UTC"}, path


def test_quarantined_markers_are_listed_with_their_reasons(page: TestClient, queue: Control) -> None:
    assert 'href="/quarantine"' in page.get("/tracker").text
    text = page.get("/quarantine").text
    assert "the value is not a protobuf message of markers" in text
    assert text.count("<tr><td") == 1


def test_the_same_is_told_as_json(page: TestClient, queue: Control) -> None:
    told = page.get("/api/stats").json()["topics"][queue.queue]["subscriptions"]["billing"]
    assert (told["leased"], told["held"], told["blocked"], told["blocking"]) == (1, 1, 1, 1)
    maps = page.get("/api/map", params={"topic": queue.queue, "name": "billing", "width": "1"}).json()
    assert maps["0"]["cells"] == [
        {
            "first": 0,
            "end": 10,
            "acked": 2,
            "leased": 1,
            "available": 1,
            "delayed": 1,
            "blocked": 1,
            "held": 1,
            "unread": 3,
        }
    ]
    assert page.get("/api/map", params={"topic": "t", "name": "s"}).status_code == 404


def test_a_page_of_a_cluster_without_topics_says_what_to_do(queue: Control) -> None:
    nothing = settings_of(queue, allow_hosts=frozenset({"testserver"}))
    empty = new_control(queue.config)
    from spark_cursor_source.ui import create_app

    with Collector(settings_of(empty)) as collector:
        wait_until(lambda: collector.snapshot.view is not None)
        text = TestClient(create_app(collector, nothing)).get("/").text
    assert "No subscription yet" in text
    assert "cursorq tracker" in text


NOT_KNOWN = ("/", "/stuck", "/dead", "/consumers", "/tracker", "/subscription?topic=t")
NOWHERE = UiSettings(kafka={"bootstrap.servers": "127.0.0.1:9"}, refresh_ms=100)


def test_before_the_first_snapshot_the_page_says_that_it_reads() -> None:
    page = TestClient(create_app(Collector(NOWHERE), NOWHERE), base_url="http://localhost")
    for path in NOT_KNOWN:
        assert "Reading the" in page.get(path).text, path


def test_what_is_not_known_is_not_shown_as_nothing() -> None:
    with Collector(NOWHERE) as collector:
        wait_until(lambda: collector.snapshot.failure is not None)
        page = TestClient(create_app(collector, NOWHERE), base_url="http://localhost")
        for path in NOT_KNOWN:
            text = page.get(path).text
            assert "The cluster cannot be read." in text, path
            assert "Not known yet" in text, path
            told = ("Nothing is outstanding", "No dead letters", "No subscription")
            assert not any(one in text for one in told), path


def test_a_cluster_that_does_not_answer_is_an_error_on_the_page_without_secrets() -> None:
    from spark_cursor_source.ui import UiSettings, create_app

    kafka = {"bootstrap.servers": "127.0.0.1:1", "sasl.password": "hunter2"}
    settings = UiSettings(kafka=kafka, cursors_topic="c", markers_topic="m", refresh_ms=50)
    assert "hunter2" not in repr(settings)
    collector = Collector(settings)
    page = TestClient(create_app(collector, settings), base_url="http://localhost")
    assert "Reading the cursors topic" in page.get("/").text
    assert page.get("/healthz").json() == {"status": "starting"}
    assert page.get("/api/stats").status_code == 503


@pytest.mark.parametrize("path", ["/static/page.css", "/static/page.js", "/static/htmx.min.js"])
def test_files_of_the_page_are_its_own(page: TestClient, path: str) -> None:
    assert page.get(path).status_code == 200


def test_an_answer_loads_nothing_of_other_hosts_and_runs_no_inline_script(page: TestClient) -> None:
    answer = page.get("/")
    assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
    assert "unsafe" not in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    for inline in ("style=", "onclick=", "<style", "<script>", "https://"):
        assert inline not in answer.text


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80"])
def test_a_foreign_host_name_is_refused(page: TestClient, host: str) -> None:
    assert page.get("/", headers={"Host": host}).status_code == 421


def test_a_page_with_a_token_answers_nobody_without_it(open_page: Open) -> None:
    page = open_page(token="right")
    assert page.get("/").status_code == 401
    assert page.get("/?token=wrong").status_code == 401
    assert page.get("/", headers={"Cookie": f"{cookie_name_of('right')}=right"}).status_code == 401
    assert page.get("/healthz").status_code == 200
    assert page.get("/", headers={"Authorization": "Bearer right"}).status_code == 200
    moved = page.get("http://localhost//evil.example/?token=right&q=a", follow_redirects=False)
    assert (moved.status_code, moved.headers["Location"]) == (303, "/evil.example/?q=a")
    cookie = moved.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "right" not in cookie
    assert page.get("/").status_code == 200, "the cookie counts from now on"


def test_pages_with_other_tokens_on_other_ports_of_a_host_do_not_log_each_other_out(open_page: Open) -> None:
    first, second = open_page(token="first"), open_page(token="second")
    cookies = {}
    for page, token in ((first, "first"), (second, "second")):
        moved = page.get(f"/?token={token}", follow_redirects=False)
        name, _, value = moved.headers["Set-Cookie"].partition(";")[0].partition("=")
        cookies[name] = value
    kept = {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}
    for page in (first, second):
        page.cookies.clear()
        assert page.get("/", headers=kept).status_code == 200


def test_a_request_of_another_web_page_changes_nothing(page: TestClient) -> None:
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert page.post("/", headers=headers).status_code == 403
