"""Actions of the page: what each would do, and what it did. Each is written with its author."""

from __future__ import annotations

import hmac
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from spark_cursor_source.admin import (
    DeadLetterFilter,
    delete_dead_letters,
    pause_subscription,
    redrive,
    resume_subscription,
)
from spark_cursor_source.admin.dead_letters import ALL_SUBSCRIPTIONS
from spark_cursor_source.core.counted import counted
from spark_cursor_source.core.move_preview import partitions_text
from spark_cursor_source.errors import CommandWaits, CursorqError
from spark_cursor_source.topics.authors import author_of
from spark_cursor_source.ui.access import form_key_of
from spark_cursor_source.ui.collector import Collector
from spark_cursor_source.ui.limits import LimitActions
from spark_cursor_source.ui.lookups import answer_of
from spark_cursor_source.ui.moves import Moves
from spark_cursor_source.ui.pages import Pages, link
from spark_cursor_source.ui.plans import Fields, Plan, Question
from spark_cursor_source.ui.saves import Saves
from spark_cursor_source.ui.settings import UiSettings

_MOST_FORM_BYTES = 1 << 20  # a form may have a position for each of thousands of partitions
_MOST_RESULTS = 1_000  # results that are kept


class Actions:
    """Actions on one cluster.

    Raises:
        KeyError: a plan or an action lacks a field, or has a name that does not exist.
        CursorqError: the errors of the functions of ``admin``.
    """

    def __init__(self, settings: UiSettings) -> None:
        self._settings = settings
        author = f"{author_of(settings.kafka)} by cursorq ui"
        self._signed: dict[str, Any] = {"author": author, **settings.tracker_topics}
        moves, saves = Moves(settings, author), Saves(settings, author)
        limits = LimitActions(settings, author)
        self._of: dict[str, tuple[Callable[[Fields], Plan | Question], Callable[[Fields], str]]] = {
            "seek": (moves.seek, moves.do_seek),
            "skip": (moves.skip, moves.do_skip),
            "expire": (moves.expire, moves.do_expire),
            "undo": (moves.undo, moves.do_undo),
            "snapshot": (saves.snapshot, saves.do_snapshot),
            "restore": (saves.restore, saves.do_restore),
            "clone": (saves.clone, saves.do_clone),
            "forget": (saves.forget, saves.do_forget),
            "limit": (limits.limit, limits.do_limit),
            "pause": (self._plan_pause, self._pause),
            "resume": (self._plan_resume, self._resume),
            "redrive": (self._plan_redrive, self._redrive),
            "delete": (self._plan_delete, self._delete),
        }

    def plan(self, name: str, given: Fields) -> Plan | Question:
        """Returns what an action would do, or what it needs to know before. Nothing is changed."""
        return self._of[name][0](given)

    def do(self, name: str, given: Fields) -> str:
        """Does an action, and returns a sentence about its result."""
        return self._of[name][1](given)

    def _plan_pause(self, given: Fields) -> Plan:
        topic, name = given["topic"], given["name"]
        return Plan(
            title=f"Pause {name} on {topic}",
            told="Its consumers lease no further message until you resume it. What they hold now is finished "
            "and acked as usual.",
            button="Pause",
            fields={"topic": topic, "name": name},
        )

    def _plan_resume(self, given: Fields) -> Plan:
        topic, name = given["topic"], given["name"]
        return Plan(
            title=f"Resume {name} on {topic}",
            told="A pause ends, an open breaker closes, and dead letters that could not be written are tried "
            "again at once.",
            button="Resume",
            fields={"topic": topic, "name": name},
        )

    def _plan_redrive(self, given: Fields) -> Plan:
        found = redrive(self._settings.kafka, given["letters"], _filter(given), dry_run=True, **self._signed)
        return Plan(
            title=f"Redrive {counted(found.sent, 'dead letter')} of {given['letters']}",
            told=f"{_words_of(given)} Each is appended to its queue topic again, as a new message, and every "
            "subscription of that topic receives it. A dead letter is redriven once.",
            button=f"Redrive {found.sent:,}",
            fields=_letter_fields(given),
        )

    def _plan_delete(self, given: Fields) -> Plan:
        found = delete_dead_letters(
            self._settings.kafka, given["letters"], _filter(given), dry_run=True, **self._signed
        )
        return Plan(
            title=f"Delete {counted(found.deleted, 'dead letter')} of {given['letters']}",
            told=f"{_words_of(given)} They are neither listed nor redriven any more. This cannot be undone.",
            button=f"Delete {found.deleted:,}",
            fields=_letter_fields(given),
        )

    def _pause(self, given: Fields) -> str:
        done = pause_subscription(self._settings.kafka, given["name"], given["topic"], **self._signed)
        return f"{given['name']} is paused on {partitions_text(done.paused)}."

    def _resume(self, given: Fields) -> str:
        done = resume_subscription(self._settings.kafka, given["name"], given["topic"], **self._signed)
        if not (done.paused or done.opened or done.retried):
            nothing = f"{given['name']} was neither paused nor held."
            if not done.unread:
                return nothing
            return (
                f"{nothing} The tracker has yet to read markers of {partitions_text(done.unread)}, and a "
                "pause among them ends too."
            )
        return (
            f"{given['name']}: the pause ends on {partitions_text(done.paused)}, the breaker closes on "
            f"{partitions_text(done.opened)}, dead letters of {partitions_text(done.retried)} are tried "
            "again."
        )

    def _redrive(self, given: Fields) -> str:
        done = redrive(self._settings.kafka, given["letters"], _filter(given), **self._signed)
        return f"{counted(done.sent, 'dead letter')} of {given['letters']} redriven."

    def _delete(self, given: Fields) -> str:
        done = delete_dead_letters(self._settings.kafka, given["letters"], _filter(given), **self._signed)
        return f"{done}."


def _letter_fields(given: Fields) -> dict[str, str]:
    names = ("letters", "subscription", "reason", "template")
    return {name: given[name] for name in names if name in given}


def _words_of(given: Fields) -> str:
    """Returns a sentence about the dead letters that the filter selects."""
    template = given.get("template")
    known = [f"{name} {given[name] or '(empty)'}" for name in ("subscription", "reason") if name in given]
    known += [] if template is None else [f"error {template}" if template else "no error"]
    words = ", ".join(known)
    return f"{words[0].upper()}{words[1:]}." if words else "All dead letters of the topic."


def _filter(given: Fields) -> DeadLetterFilter:
    """Returns the filter of one group; the reason is a text and no pattern."""
    reason = given.get("reason")
    return DeadLetterFilter(
        subscription=given.get("subscription", ALL_SUBSCRIPTIONS),
        reason="" if reason is None else f"^{re.escape(reason)}$",
        template=given.get("template"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Result of an action, in words."""

    heading: str
    told: str  #: a sentence about the result, or the text of the error
    failed: bool
    back: str  #: address of the page that the action began on


class Results:
    """Results of the latest forms. Thread-safe.

    A double click sends a form twice, and so does a reload. A second skip would drop more messages, and a
    second undo would take the first one back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._results: OrderedDict[str, Future[Result]] = OrderedDict()

    def once(self, form: str, act: Callable[[], Result]) -> Result:
        """Returns the result of a form. Only its first call acts; others at the same time wait for it."""
        with self._lock:
            earlier = self._results.get(form)
            result = self._results.setdefault(form, Future())
            if len(self._results) > _MOST_RESULTS:
                self._results.popitem(last=False)
        if earlier is None:
            try:
                result.set_result(act())
            except BaseException as why:
                result.set_exception(why)
                raise
        return result.result()

    def of(self, form: str) -> Result | None:
        """Returns the result of a form that has acted; None: it is not known, or not any more."""
        with self._lock:
            result = self._results.get(form)
        return None if result is None or not result.done() or result.exception() else result.result()


class ActionViews:
    """Answers to the forms of actions: first what would happen, then what has happened."""

    def __init__(self, collector: Collector, settings: UiSettings, pages: Pages) -> None:
        self._collector = collector
        self._token = settings.token if settings.allow_actions else None
        self._pages = pages
        self._actions = Actions(settings)
        self._results = Results()

    def confirm(self, request: Request) -> Response:
        """Answers with what an action would do, and its form. Nothing is changed."""
        if self._token is None:
            return _off()
        given = dict(request.query_params)
        name = given.get("do", "")
        try:
            plan, failure = answer_of(lambda: self._actions.plan(name, given))
        except KeyError as missing:
            return _no_action(missing)
        return self._pages.answer(
            request,
            self._collector.snapshot,
            "question.html" if isinstance(plan, Question) else "confirm.html",
            plan=plan,
            failure=failure,
            do=name,
            key=form_key_of(self._token),
            form=secrets.token_urlsafe(16),
            back=_back(given),
        )

    async def act(self, request: Request) -> Response:
        """Does the action of a form that this page has made, once. Sends the browser to the result.

        A reload of the result does not send the form again.
        """
        body = b""
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > _MOST_FORM_BYTES:
                    return PlainTextResponse("The form is too large.\n", 413)
        except ClientDisconnect:  # a form that is cut off may lack what limits its action
            return PlainTextResponse("The form is not complete. Send it again.\n", 400)
        given = dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))
        return await run_in_threadpool(self._act, given)

    def done(self, request: Request) -> Response:
        """Answers with the result of the action of a form."""
        if self._token is None:
            return _off()
        result = self._results.of(request.query_params.get("form", ""))
        return self._pages.answer(
            request,
            self._collector.snapshot,
            "done.html",
            status=200 if result is not None else 404,
            result=result,
        )

    def _act(self, given: dict[str, str]) -> Response:
        if self._token is None:
            return _off()
        key, form = form_key_of(self._token), given.get("form", "")
        if not form or not hmac.compare_digest(given.get("key", "").encode(), key.encode()):
            return PlainTextResponse("The form is not one of this page. Open it again.\n", 403)
        try:
            self._results.once(form, lambda: self._result(given))
        except KeyError as missing:
            return _no_action(missing)
        return RedirectResponse(link("/done", form=form), 303)

    def _result(self, given: dict[str, str]) -> Result:
        try:
            heading, told, failed = "Done", self._actions.do(given.get("do", ""), given), False
        except CommandWaits as why:
            heading, told, failed = "Not done yet", str(why), True
        except CursorqError as why:
            heading, told, failed = "Nothing was done", str(why), True
        return Result(heading=heading, told=told, failed=failed, back=_back(given))


def _back(given: Fields) -> str:
    """Returns the address of the page that an action begins on."""
    letters = given.get("letters")
    if letters is not None:
        return link("/dead", letters=letters)
    return link("/subscription", topic=given.get("topic"), name=given.get("name"))


def _off() -> Response:
    return PlainTextResponse("Actions are off. Start the page with --allow-actions.\n", 403)


def _no_action(missing: KeyError) -> Response:
    return PlainTextResponse(f"There is no such action, or it lacks {missing}.\n", 400)
