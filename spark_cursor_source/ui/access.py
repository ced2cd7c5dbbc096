"""Rules of access: who may ask the page, under which name of the host, and what a browser may load.

A page on loopback is open to the programs of its machine. A token closes it. The Host header is checked,
because a foreign web page could else read this one by a name that it resolves to loopback (DNS rebinding).
"""

from __future__ import annotations

import hmac
import ipaddress
from hashlib import sha256
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spark_cursor_source.ui.settings import UiSettings

#: no inline script or style, nothing from another host, no frame around the page
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    # With no-referrer, a browser sends "Origin: null" with the forms of this page, as a foreign page does.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_OPEN = ("/healthz", "/static/")  # tell nothing about the cluster
_NO_TOKEN = (
    "This page needs its token. Open the address that `cursorq ui` printed at its start, "
    "or send the header `Authorization: Bearer TOKEN`.\n"
)


def is_loopback(host: str) -> bool:
    """Tells whether a host name or an address means this machine only.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.7", "::1", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def may_be_called(host: str, names: frozenset[str]) -> bool:
    """Tells whether the Host header is one that a browser sends to this page only.

    A literal address cannot be rebound to another one. Other names must be ``localhost`` or be allowed.

    >>> [may_be_called(host, frozenset({"queues.corp"})) for host in
    ...  ("localhost:80", "127.0.0.1:8", "[::1]:8", "queues.corp", "evil.example:80", "")]
    [True, True, True, True, False, False]
    """
    name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    if name == "localhost" or name.lower() in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def cookie_name_of(token: str) -> str:
    """Returns the name of the cookie, one for each token. The ports of a host share cookies."""
    return "cursorq_ui_" + hmac.new(token.encode(), b"cursorq ui cookie", sha256).hexdigest()[:12]


def session_of(token: str) -> str:
    """Returns the value of the cookie, which proves the token and does not contain it."""
    return hmac.new(token.encode(), b"cursorq ui session", sha256).hexdigest()


def form_key_of(token: str) -> str:
    """Returns the value that each form of an action carries, which no other web page can know."""
    return hmac.new(token.encode(), b"cursorq ui form", sha256).hexdigest()


class Access:
    """ASGI middleware that refuses requests, and adds the security headers to all answers."""

    def __init__(self, app: ASGIApp, settings: UiSettings) -> None:
        self._app = app
        self._token = settings.token
        self._hosts = frozenset(name.lower() for name in settings.allow_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        await (self._app if refusal is None else refusal)(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not may_be_called(headers.get("host", ""), self._hosts):
            text = "This name of the host is not allowed. Name it with --allow-host at the start.\n"
            return PlainTextResponse(text, 421)
        if scope["method"] not in ("GET", "HEAD") and not self._from_here(headers):
            return PlainTextResponse("The request comes from another web page.\n", 403)
        if self._token is None or scope["path"].startswith(_OPEN):
            return None
        return self._without_session(scope, headers, self._token)

    def _without_session(self, scope: Scope, headers: Headers, token: str) -> Response | None:
        given = headers.get("authorization", "").removeprefix("Bearer ")
        if _same(given, token) or _same(_cookie(headers, token), session_of(token)):
            return None
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        if scope["method"] == "GET" and _same(query.pop("token", ""), token):
            # The address bar and the history of the browser should not keep the token.
            path = "/" + scope["path"].lstrip("/")  # two slashes would name another host
            target = RedirectResponse(path + ("?" + urlencode(query) if query else ""), 303)
            name, proof = cookie_name_of(token), session_of(token)
            target.set_cookie(name, proof, httponly=True, samesite="strict", path="/")
            return target
        return PlainTextResponse(_NO_TOKEN, 401)

    @staticmethod
    def _from_here(headers: Headers) -> bool:
        """Tells whether a request that changes something comes from a page of this server or no browser."""
        origin = headers.get("origin")
        if origin is not None:
            return origin.partition("://")[2] == headers.get("host")
        return headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


def _cookie(headers: Headers, token: str) -> str:
    return cookie_parser(headers.get("cookie", "")).get(cookie_name_of(token), "")
