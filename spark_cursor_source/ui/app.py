"""Addresses of the page, and its server."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from spark_cursor_source.ui.access import Access
from spark_cursor_source.ui.actions import ActionViews
from spark_cursor_source.ui.collector import Collector
from spark_cursor_source.ui.lookups import Lookups
from spark_cursor_source.ui.pages import HERE, Pages
from spark_cursor_source.ui.settings import UiSettings
from spark_cursor_source.ui.views import Views

_FAREWELL_S = 1  # open event streams get this long to end


def create_app(collector: Collector, settings: UiSettings) -> Starlette:
    """Returns the page as an ASGI application. It shows the snapshots of the collector."""
    pages = Pages(cluster=settings.kafka.get("bootstrap.servers", "the cluster"))
    views = Views(collector, settings, pages)
    lookups = Lookups(collector, settings, pages)
    actions = ActionViews(collector, settings, pages)
    routes = [
        Route("/", views.overview),
        Route("/subscription", views.subscription),
        Route("/stuck", views.stuck),
        Route("/message", lookups.message),
        Route("/payload", lookups.payload),
        Route("/consumers", views.consumers),
        Route("/tracker", views.tracker),
        Route("/quarantine", lookups.quarantine),
        Route("/dead", lookups.dead),
        Route("/doctor", lookups.doctor),
        Route("/audit", lookups.audit),
        Route("/confirm", actions.confirm),
        Route("/act", actions.act, methods=["POST"]),
        Route("/done", actions.done),
        Route("/events", views.events),
        Route("/healthz", views.health),
        Route("/api/stats", views.api_stats),
        Route("/api/map", views.api_map),
        Mount("/static", _Static(directory=HERE / "static")),
    ]
    return Starlette(routes=routes, middleware=[Middleware(Access, settings=settings)])


class _Static(StaticFiles):
    """Files that a browser may keep for a while."""

    def file_response(self, *args: object, **more: object) -> Response:
        answer = super().file_response(*args, **more)  # type: ignore[arg-type]
        answer.headers["Cache-Control"] = "max-age=300"
        return answer


def serve(settings: UiSettings, *, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serves the page until SIGINT or SIGTERM. ``ready`` gets its address once connections are accepted.

    Port 0 means any free port.

    Raises:
        OSError: the address is not one of this machine, or the port is in use.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listening, Collector(settings) as collector:
        config = uvicorn.Config(
            create_app(collector, settings),
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_FAREWELL_S,
        )
        ready(_address(host, listening.getsockname()[1], settings.token))
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            uvicorn.Server(config).run(sockets=[listening])
        except KeyboardInterrupt:
            return  # uvicorn raises the signal again after it has ended


def _address(host: str, port: int, token: str | None) -> str:
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    name = f"[{name}]" if ":" in name else name
    return f"http://{name}:{port}/" + (f"?token={quote(token, safe='')}" if token else "")
