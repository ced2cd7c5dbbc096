"""The page in a real browser, with a broker, a tracker and consumers at work; it takes the docs' pictures.

The tests run where a Chromium is found. ``CURSORQ_PICTURES=1`` writes the pictures into ``docs/_static``.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from spark_cursor_source.admin.subscriptions import EARLIEST, Subscriptions
from spark_cursor_source.client import QueueConsumer, QueueMessage, Service, ServiceConfig
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.kafka import admin
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.tracker import Tracker
from spark_cursor_source.ui import Collector, UiSettings, create_app, views
from spark_cursor_source.ui.pages import VIEWS
from spark_cursor_source.wire import cursor as cursor_wire
from tests.beside import beside
from tests.conftest import ROOT
from tests.kafka.control_plane import Control, cell_of, control_on, cursor_of, produce
from tests.ui.conftest import settings_of
from tests.ui.test_command import COMMAND
from tests.waiting import wait_until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is found: apt-get install chromium"),
]

TOPIC, QUIET = "shop.orders", "shop.mails"
WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 390, "height": 800}
WAIT_MS = 120_000
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
SAMPLES = 40  #: of the curves in the pictures


@contextmanager
def shop(broker: EmbeddedKafka) -> Iterator[Control]:
    """A queue with four partitions that two subscriptions read, and one that nobody reads."""
    control = control_on(broker).create()
    ClusterAdmin(control.config).create({TOPIC: (4, {}), QUIET: (2, {})})
    pick = random.Random(5)
    orders = [
        {"key": b"order-%d" % at, "value": b'{"order": %d, "items": [3, 5]}' % at, "partition": at % 4}
        for at in range(2_400)
    ]
    produce(control.config, TOPIC, orders)
    produce(control.config, QUIET, [{"value": b"mail %d" % at, "partition": at % 2} for at in range(60)])
    with ExitStack() as stack:
        stack.enter_context(Tracker(control.options(trigger="50ms", takeOver="true")))
        names = control.topics
        with Subscriptions(control.config, **names, **control.groups) as subscriptions:
            for topic, subscription in ((TOPIC, "billing"), (TOPIC, "shipping"), (QUIET, "newsletter")):
                subscriptions.create(subscription, topic, EARLIEST)
        service = Service(
            ServiceConfig(
                bootstrap_servers=broker.bootstrap_servers,
                message_topic=TOPIC,
                marker_topic=control.markers,
                redeliveries_topic=control.redeliveries,
                cursors_topic=control.cursors,
                **control.groups,
                consumer_receive_buffer_capacity=120,
                session_timeout_ms=6_000,
            )
        )
        queues = {name: service.queue(None, subscription=name) for name in ("billing", "shipping")}
        billing, shipping = (stack.enter_context(queue.consumer()) for queue in queues.values())
        for consumer, share in ((billing, 0.78), (shipping, 0.97)):
            for _ in range(1_900):
                settle(consumer.receive(WAIT_MS), pick, share)
            consumer.flush()
        stack.enter_context(work_goes_on(control, shipping, pick))
        yield control


def settle(message: QueueMessage | None, pick: random.Random, share: float) -> None:
    assert message is not None
    if pick.random() < share or message.offset < 20:
        message.ack_async()
    elif pick.random() < 0.3:
        message.nack(600_000 if pick.random() < 0.4 else 0, reason="card declined")


@contextmanager
def work_goes_on(control: Control, consumer: QueueConsumer, pick: random.Random) -> Iterator[None]:
    """Producers and one of the consumers work until the end of the block."""

    def work(ended: threading.Event) -> None:
        while not ended.wait(0.1):
            orders = [{"value": b"{}", "partition": pick.randrange(4)} for _ in range(pick.randrange(8, 16))]
            produce(control.config, TOPIC, orders)
            for _ in orders:
                settle(consumer.receive(WAIT_MS), pick, 0.99)

    with beside(work):
        yield


@pytest.fixture(scope="module")
def at_work(broker: EmbeddedKafka) -> Iterator[tuple[Control, Collector]]:
    with shop(broker) as control, Collector(settings_of(control)) as collector:
        wait_until(lambda: sum(row.leased for row in collector.snapshot.rows) > 100)
        wait_until(lambda: all(row.consumers is not None for row in collector.snapshot.rows))
        wait_until(lambda: len(collector.curves(TOPIC, "billing")[0].values) > SAMPLES)
        yield control, collector


@contextmanager
def served(collector: Collector, settings: UiSettings) -> Iterator[tuple[str, uvicorn.Server]]:
    # As in the command: without a time to end in, a server that is told to stop goes on for open pages.
    app = create_app(collector, settings)
    config = uvicorn.Config(app, port=0, log_level="critical", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}", server
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def site(at_work: tuple[Control, Collector]) -> Iterator[tuple[str, uvicorn.Server]]:
    """The address of a page of the shop, and its server."""
    control, collector = at_work
    with served(collector, settings_of(control)) as found:
        yield found


@pytest.fixture(scope="module")
def desk(at_work: tuple[Control, Collector]) -> Iterator[str]:
    """The address of a page of the shop that may act."""
    control, collector = at_work
    with served(collector, settings_of(control, token="t", allow_actions=True)) as (address, _):
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@contextmanager
def tab(browser: Any, size: dict[str, int] = WIDE, scheme: str = "light") -> Iterator[Any]:
    """A page of the browser that fails the test if a script fails or something is blocked."""
    troubles: list[str] = []
    with browser.new_context(viewport=size, color_scheme=scheme, device_scale_factor=1) as context:
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on(
            "console", lambda told: troubles.extend([told.text] if "Content Security" in told.text else [])
        )
        yield page
    assert troubles == []


def picture(page: Any, name: str, tmp_path: Path, *, full: bool = False) -> None:
    into = ROOT / "docs" / "_static" if os.environ.get("CURSORQ_PICTURES") else tmp_path
    page.screenshot(path=into / f"ui-{name}.png", full_page=full, caret="initial")
    assert (into / f"ui-{name}.png").stat().st_size > 10_000


Site = tuple[str, uvicorn.Server]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_of_the_page(browser: Any, site: Site, tmp_path: Path, scheme: str) -> None:
    with tab(browser, scheme=scheme) as page:
        page.goto(site[0])
        page.get_by_role("link", name="newsletter").wait_for()
        picture(page, f"overview-{scheme}", tmp_path)
        page.get_by_role("link", name="billing").click()
        page.get_by_role("heading", name="Hole map").wait_for()
        picture(page, f"subscription-{scheme}", tmp_path)


def test_a_narrow_window_scrolls_down_only(browser: Any, site: Site) -> None:
    with tab(browser, NARROW) as page:
        for path in ("/", f"/subscription?topic={TOPIC}&name=billing&partition=0"):
            page.goto(site[0] + path)
            assert page.evaluate(WIDER) <= 0, path


def test_the_page_is_used_with_the_keyboard_alone(browser: Any, site: Site) -> None:
    with tab(browser) as page:
        page.goto(site[0])
        page.keyboard.press("/")
        page.keyboard.type("newsl")
        page.get_by_text("1 of 3 subscriptions").wait_for()
        page.wait_for_url("**q=newsl*")  # the rows of "new" say the same
        page.keyboard.press("Tab")
        while page.evaluate("document.activeElement.id") != f"s-{QUIET}-newsletter":
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="newsletter").wait_for()
        page.get_by_role("link", name="Partition 1").press("Enter")
        page.get_by_label("offset 0, unread").wait_for()


def test_the_page_is_live_and_keeps_the_focus_and_the_filter(browser: Any, site: Site) -> None:
    with tab(browser) as page:
        page.goto(site[0] + "/?q=bill")
        link = page.get_by_role("link", name="billing")
        link.focus()
        page.evaluate("document.querySelector('tbody tr').id = 'old'")
        page.locator("#old").wait_for(state="detached")
        assert page.evaluate("document.activeElement.id") == f"s-{TOPIC}-billing"
        assert page.locator("tbody tr").count() == 1
        page.keyboard.press("l")
        assert page.get_by_role("button", name="Stopped").is_visible()


def test_a_strip_is_zoomed_until_messages_appear(browser: Any, site: Site) -> None:
    with tab(browser) as page:
        page.goto(f"{site[0]}/subscription?topic={TOPIC}&name=billing")
        page.locator(".strip a").nth(2).click()
        page.locator(".grid a").first.wait_for()
        assert page.locator("#zoom h2").inner_text().startswith("Partition 0, offsets")


def test_a_snapshot_is_taken_restored_and_cloned_with_a_keyboard(
    browser: Any, desk: str, tmp_path: Path
) -> None:
    subscription = f"{desk}/subscription?topic={QUIET}&name=newsletter"
    with tab(browser) as page:
        page.goto(f"{subscription}&token=t")
        page.get_by_role("link", name="snapshot …").press("Enter")
        page.get_by_label("Name").wait_for()
        assert page.evaluate("document.activeElement.name") == "snapshot"
        page.keyboard.type("before release 7")
        picture(page, "snapshot-question", tmp_path)
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Take the snapshot").press("Enter")
        page.get_by_text("newsletter is saved as 'before release 7'").wait_for()
        page.get_by_role("link", name="back").press("Enter")
        page.get_by_role("link", name="skip …").press("Enter")
        page.get_by_label("the next messages of each partition").last.fill("5")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Skip").press("Enter")
        page.get_by_text("has nothing left below").wait_for()
        page.goto(subscription)
        page.get_by_text("state before the last move").wait_for()
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        picture(page, "snapshots", tmp_path)
        page.get_by_role("link", name="restore …").press("Enter")
        page.get_by_text("10 messages will come again").wait_for()
        picture(page, "restore", tmp_path)
        page.get_by_role("button", name="Restore").press("Enter")
        page.get_by_text("newsletter goes on at").wait_for()
        page.goto(subscription)
        page.get_by_role("link", name="clone …").first.press("Enter")
        page.get_by_label("New subscription").fill("newsletter-staging")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Clone").wait_for()
        picture(page, "clone", tmp_path)
        page.get_by_role("button", name="Clone").press("Enter")
        page.get_by_text("newsletter-staging begins at").wait_for()
        page.goto(f"{desk}/audit")
        page.get_by_text("restore snapshot before release 7").wait_for()
    for name, size, scheme in (("narrow", NARROW, "light"), ("dark", WIDE, "dark")):
        with tab(browser, size, scheme) as page:
            page.goto(f"{subscription}&token=t")
            page.evaluate("document.getElementById('saved-title').scrollIntoView()")
            picture(page, f"snapshots-{name}", tmp_path)
            assert page.evaluate(WIDER) <= 0
            page.goto(f"{desk}/confirm?do=restore&topic={QUIET}&name=newsletter&snapshot=before+release+7")
            page.get_by_role("button", name="Restore").wait_for()
            picture(page, f"restore-{name}", tmp_path)


def test_limits_are_set_and_shown_with_a_keyboard(browser: Any, desk: str, tmp_path: Path) -> None:
    subscription = f"{desk}/subscription?topic={QUIET}&name=newsletter"
    with tab(browser) as page:
        page.goto(f"{subscription}&token=t")
        page.get_by_role("link", name="limit …").press("Enter")
        page.get_by_label("Messages per second").wait_for()
        assert page.evaluate("document.activeElement.name") == "rate"
        page.keyboard.type("2.5")
        page.get_by_label("Outstanding messages").fill("70")
        picture(page, "limit-question", tmp_path)
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Set the limits").wait_for()
        picture(page, "limit", tmp_path)
        page.get_by_role("button", name="Set the limits").press("Enter")
        page.get_by_text(
            "newsletter is limited to 2.5 messages per second and 70 outstanding messages."
        ).wait_for()
        page.goto(subscription)
        page.get_by_text("Rate limit").wait_for()
        page.get_by_text("Outstanding limit").wait_for()
    for name, size, scheme in (("narrow", NARROW, "light"), ("dark", WIDE, "dark")):
        with tab(browser, size, scheme) as page:
            page.goto(f"{subscription}&token=t")
            page.get_by_text("Rate limit").wait_for()
            picture(page, f"limited-{name}", tmp_path)
            assert page.evaluate(WIDER) <= 0
            page.goto(f"{desk}/confirm?do=limit&topic={QUIET}&name=newsletter")
            page.get_by_label("Messages per second").wait_for()
            picture(page, f"limit-question-{name}", tmp_path)
            assert page.evaluate(WIDER) <= 0


@pytest.mark.parametrize(
    ("name", "size", "scheme"),
    [("light", WIDE, "light"), ("dark", WIDE, "dark"), ("narrow", NARROW, "light")],
)
def test_the_last_errors_appear_on_the_page_of_the_oldest_by_themselves(
    browser: Any, collector: Collector, queue: Control, tmp_path: Path, name: str, size: Any, scheme: str
) -> None:
    with served(collector, settings_of(queue)) as (address, _), tab(browser, size, scheme) as page:
        page.goto(f"{address}/stuck")
        page.get_by_text("<i>no bank</i>").wait_for()
        picture(page, f"oldest-{name}", tmp_path)
        assert page.evaluate(WIDER) <= 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_blocked_message_is_seen_and_leads_to_the_one_that_it_waits_for(
    browser: Any, collector: Collector, queue: Control, scheme: str
) -> None:
    with served(collector, settings_of(queue)) as (address, _), tab(browser, scheme=scheme) as page:
        page.goto(f"{address}/subscription?topic={queue.queue}&name=billing&partition=0")
        page.get_by_text("blocked: waits for an earlier message").wait_for()
        assert page.evaluate(CONTRAST, ["f-blocked", "stroke", "f-blocked-back"]) >= 3
        page.get_by_label("offset 5, blocked, waits for offset 0").click()
        page.get_by_role("heading", name="Message 5").wait_for()
        page.get_by_role("link", name="offset 0").first.click()
        page.get_by_role("heading", name="Message 0").wait_for()
        page.get_by_text("blocks 1 message").wait_for()


@pytest.mark.parametrize(
    ("name", "size", "scheme"),
    [("light", WIDE, "light"), ("dark", WIDE, "dark"), ("narrow", NARROW, "light")],
)
def test_a_partition_without_a_leader_is_told_where_its_subscriptions_are(
    browser: Any,
    queue: Control,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    size: Any,
    scheme: str,
) -> None:
    leaders_of = admin.leaders_of

    def without_leader(*given: Any, **more: Any) -> Any:
        leaders, denied = leaders_of(*given, **more)
        return leaders | {(queue.queue, 0): None}, denied

    monkeypatch.setattr(admin, "leaders_of", without_leader)
    settings = settings_of(queue)
    with (
        Collector(settings) as collector,
        served(collector, settings) as (address, _),
        tab(browser, size, scheme) as page,
    ):
        page.goto(address)
        page.get_by_text("end unknown").first.wait_for()
        picture(page, f"end-unknown-{name}", tmp_path)
        page.get_by_role("link", name="billing").click()
        page.get_by_text("The end of the log is unknown").wait_for()
        page.get_by_text(f"partition 0 of topic '{queue.queue}' has no leader").wait_for()
        picture(page, f"end-unknown-subscription-{name}", tmp_path)
        assert page.evaluate(WIDER) <= 0


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_a_long_name_leaves_the_other_columns_in_the_window(
    browser: Any, broker: EmbeddedKafka, tmp_path: Path, size: dict[str, int]
) -> None:
    control = control_on(broker).create()
    ClusterAdmin(control.config).create({control.queue: (1, {})})
    for name in ("W" * 200, "short"):
        cursor = cursor_of(cell_of(control.queue, subscription=name), 0)
        produce(
            control.config, control.cursors, [{"key": cursor.cell.key, "value": cursor_wire.encode(cursor)}]
        )
    settings = settings_of(control)
    with (
        Collector(settings) as collector,
        served(collector, settings) as (address, _),
        tab(browser, size) as page,
    ):
        page.goto(address)
        page.get_by_role("link", name="short").wait_for()
        picture(page, f"long-name-{size['width']}", tmp_path)
        # In one call, because a refresh may replace the table between two.
        left = page.evaluate("document.querySelector('tbody tr td').getBoundingClientRect().left")
        assert left < min(500, size["width"])


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_a_long_name_makes_no_page_wider_than_the_window(
    browser: Any, broker: EmbeddedKafka, size: dict[str, int]
) -> None:
    control = control_on(broker).create()
    topic = control.queue.ljust(249, "x")
    ClusterAdmin(control.config).create({topic: (1, {})})
    produce(control.config, topic, [{"value": b"{}", "headers": [("h" * 300, b"v")]}])
    cursor = cursor_of(cell_of(topic, subscription="s"), 0)
    produce(control.config, control.cursors, [{"key": cursor.cell.key, "value": cursor_wire.encode(cursor)}])
    settings = settings_of(control)
    with (
        Collector(settings) as collector,
        served(collector, settings) as (address, _),
        tab(browser, size) as page,
    ):
        wait_until(lambda: bool(collector.snapshot.rows))
        places = ("subscription?name=s&topic=", "dead?letters=", "message?partition=0&offset=0&topic=")
        for path in places:
            page.goto(f"{address}/{path}{'y' * 249 if 'letters' in path else topic}")
            page.get_by_role("heading").first.wait_for()
            assert page.evaluate(WIDER) <= 0, path
        page.get_by_role("button", name="Show key").click()
        page.get_by_text("v", exact=True).wait_for()
        assert page.evaluate(WIDER) <= 0
        assert page.locator("#payload pre").last.bounding_box()["width"] > 100


def test_each_view_can_be_seen_in_the_head_of_a_narrow_window(browser: Any, site: Site) -> None:
    with tab(browser, NARROW) as page:
        page.goto(site[0])
        links = page.locator("nav a")
        assert links.count() == len(VIEWS)
        for at in range(links.count()):
            box = links.nth(at).bounding_box()
            assert box["x"] + box["width"] <= NARROW["width"], links.nth(at).inner_text()


def test_a_value_that_is_typed_chooses_its_answer(browser: Any, desk: str) -> None:
    with tab(browser) as page:
        page.goto(f"{desk}/confirm?do=seek&topic={QUIET}&name=newsletter&token=t")
        page.locator("#in-time").fill("2026-11-21T08:00:00Z")
        assert page.locator("#how-time").is_checked()
        page.locator("#in-time").press("Enter")
        page.get_by_role("heading", name="to 2026-11-21T08:00:00.000Z").wait_for()


SILENT_MS = 16_000  #: after this time without an event, a page says that it hears nothing
HEAR_TWO_BEATS = """() => new Promise(done => {
  const events = new EventSource("/events")
  let heard = 0
  events.addEventListener("beat", () => { heard += 1; if (heard === 2) { events.close(); done() } })
})"""

#: ratio of the brightness of the stroke or fill of one class of the drawings to the fill of another one
CONTRAST = """([front, name, back]) => {
  const brightness = (kind, name) => {
    const [r, g, b] = getComputedStyle(document.querySelector("." + kind))[name].match(/\\d+/g)
      .map(one => one / 255).map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05
  }
  const [one, two] = [brightness(front, name), brightness(back, "fill")]
  return Math.max(one, two) / Math.min(one, two)
}"""


def test_a_page_whose_process_stands_still_says_so_until_it_goes_on(browser: Any) -> None:
    # A suspended process closes no connection. No broker listens there: the page answers nevertheless.
    arguments = ["--bootstrap-servers", "127.0.0.1:1"]
    with (
        subprocess.Popen([*COMMAND, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True) as command,
        tab(browser) as page,
    ):
        try:
            assert command.stdout is not None
            page.clock.install()
            with page.expect_response("**/events"):
                page.goto(command.stdout.readline().split()[1])
            assert page.locator("#lost").is_hidden()
            command.send_signal(signal.SIGSTOP)
            page.clock.fast_forward(SILENT_MS)
            page.locator("#lost").wait_for(state="visible")
            command.send_signal(signal.SIGCONT)
            page.locator("#lost").wait_for(state="hidden")
        finally:
            command.kill()


def test_a_page_without_new_values_hears_that_its_process_is_there(
    browser: Any, queue: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "_BEAT_S", 0.2)
    settings = settings_of(queue)
    with served(Collector(settings), settings) as (address, _), tab(browser) as page:
        opened: list[str] = []
        page.on("request", lambda one: opened.extend([one.url] if one.url.endswith("/events") else []))
        page.clock.install()
        page.goto(address)
        for _ in range(3):
            page.evaluate(HEAR_TWO_BEATS)
            page.clock.fast_forward(SILENT_MS // 2)
        assert page.locator("#lost").is_hidden()
        assert len(opened) == 4, "the page opened its stream again, beside the three that listen here"


@pytest.mark.parametrize("status", [401, 500])
def test_a_page_whose_refreshes_are_refused_says_that_its_values_are_old(
    browser: Any, site: Site, status: int
) -> None:
    with tab(browser) as page:
        page.goto(site[0])
        page.get_by_role("link", name="billing").wait_for()
        page.route(f"{site[0]}/", lambda route: route.fulfill(status=status))
        page.locator("#lost").wait_for(state="visible")
        page.unroute(f"{site[0]}/")
        page.locator("#lost").wait_for(state="hidden")


#: makes the time limits of requests 50 times as short
IMPATIENT = """
  const limit = Object.getOwnPropertyDescriptor(XMLHttpRequest.prototype, "timeout")
  Object.defineProperty(XMLHttpRequest.prototype, "timeout", {
    get() { return limit.get.call(this) }, set(ms) { limit.set.call(this, ms / 50) }
  })
"""


def test_a_page_whose_refreshes_are_not_answered_says_so_and_goes_on_asking(browser: Any, site: Site) -> None:
    with tab(browser) as page:
        page.add_init_script(IMPATIENT)
        page.goto(site[0])
        page.get_by_role("link", name="billing").wait_for()
        page.route(f"{site[0]}/", lambda route: None)
        page.locator("#lost").wait_for(state="visible")
        page.unroute(f"{site[0]}/")
        page.locator("#lost").wait_for(state="hidden")


def test_a_page_whose_process_has_gone_says_so(browser: Any, site: Site) -> None:
    # The last test of the file: it ends the server.
    with tab(browser) as page:
        page.goto(site[0])
        page.get_by_role("link", name="billing").wait_for()
        assert page.locator("#lost").is_hidden()
        site[1].should_exit = True
        page.locator("#lost").wait_for(state="visible")
        assert "Reconnecting" in page.locator("#lost").inner_text()
